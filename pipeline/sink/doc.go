// Package sink writes lanes' batches to the target's brokers.
//
// There are some connections to each target broker. A lane is bound to one of them at a time by a stream, so its batches
// arrive in the order of its sends. A request holds at most one batch of a partition: a broker would keep only the last
// of two and not say so. Many requests are under way at once; order and dedup come from the sequences, not from a depth.
//
// A request is framed in one scratch buffer and sent by one writev: frame and patched header of each batch, then its
// payload as it lies in the fetch response's buffer.
package sink
