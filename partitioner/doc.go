// Package partitioner says where a source topic and partition go: which topics a link takes (Filter), what they are
// called on the target (Namer), and which target partition a source partition maps to (Mapper). It is pure: no
// clock, no network, no logs.
//
// Topic patterns are Java regular expressions that have to match the whole name, as in MirrorMaker 2
// (java.util.regex.Matcher.matches). A Pattern without look-around, back-references and possessive or atomic parts
// runs on Go's linear-time engine; the others run on a backtracking engine under a time limit.
package partitioner
