// Package control does a link's work beside the data: it finds the source's
// topics, keeps the target's in step with them, and sees loops. It may be slow
// and allocate; nothing of it is on the way of a batch.
//
// It talks kmsg rather than kadm where one forbidden topic must not hide the
// answers for the others.
package control
