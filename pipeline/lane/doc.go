// Package lane carries one source partition of one link to its target partition.
//
// A lane is two things. [Machine] is the state: pure, without goroutine, clock, lock, log or metric. It takes events
// (a delivery, a completion, the answer of a look-up, the time) and leaves [Action]s behind. [Lane] is the shell: one
// goroutine that feeds the machine from a mailbox and does what the actions say.
//
// Duties of whoever drives a Machine:
//  1. feed every event from one goroutine;
//  2. after each event take the actions, in order, and do all of them;
//  3. answer every [Send] with exactly one [Completion], in the order of the sends;
//  4. answer every [Look] with one LookedUp or LookFailed;
//  5. call Tick no later than the time that Deadline names.
//
// The lane is the only releaser of a batch: the source hands its references over with Deliver, the sink borrows an
// entry until it has completed it.
package lane
