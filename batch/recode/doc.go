// Package recode makes batches that a broker accepts out of those that it refuses as they lie. It is the only room that imports codecs.
//
// A batch is taken apart no further than its reason asks for: records keep their bytes from the key's length on, and their
// attributes; only lengths, offset deltas and, to keep append times, timestamp deltas are written anew.
//
// # Determinism
//
// What comes out is a function of the batch and the Options alone: levels are fixed, nothing runs beside anything. A lane that reads a batch a
// second time so makes the bytes that it sent before, and finds them on the target by their checksum. The function also contains
// the codecs' code: another version of them may compress to other bytes. Then a batch that was under way in the moment of the upgrade is not found by
// its checksum; sequences and offsets still say where it stands.
//
// # Memory
//
// All buffers come from the pool. At its peak a Coder holds the records decoded, at most the limit, and once more encoded. What the
// encoders keep for themselves comes to a few MiB for each Coder and codec.
package recode
