// Package batch is the wire format of a Kafka record batch, seen as bytes that nobody decodes.
//
// A fetch answer is read into one counted Buf. Scan cuts a partition's share of it into Batch views, each of which holds a reference
// of the Buf. Patch writes the header that a target will accept into memory of the caller's own, with a checksum corrected from the
// old one; the bytes of the Buf are read-only from Scan on, so one fetch can feed several targets and a resend finds them unharmed.
//
// # Layout
//
// Format 2 (KIP-98; Kafka's DefaultRecordBatch.java), all numbers big-endian:
//
//	offset  size  field                 in the checksum
//	     0     8  base offset           no
//	     8     4  length (of what follows)   no
//	    12     4  partition leader epoch     no
//	    16     1  magic (2)             no
//	    17     4  CRC-32C of 21..end    -
//	    21     2  attributes            yes
//	    23     4  last offset delta     yes
//	    27     8  base timestamp, ms    yes
//	    35     8  max timestamp, ms     yes
//	    43     8  producer id           yes
//	    51     2  producer epoch        yes
//	    53     4  base sequence         yes
//	    57     4  record count          yes
//	    61     -  records, compressed as one   yes
//
// Attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon (the base timestamp is then the time when
// tombstones may go, KIP-534).
//
// Formats 0 and 1 (Kafka's LegacyRecord.java) are single messages, or a wrapper around compressed ones:
//
//	 0     8  offset (of the last message inside, for a wrapper)
//	 8     4  length (of what follows)
//	12     4  CRC-32 (IEEE) of 16..end
//	16     1  magic (0 or 1)
//	17     1  attributes (bits 0-2 codec, 3 LogAppendTime)
//	18     8  timestamp, ms (format 1 only)
//	 -     -  key and value, each with a 4-byte length
//
// # Ownership
//
// A reference is a move, not a share: whoever takes a Batch releases it once. Every slice that a Batch returns is valid until then. Under the
// race detector, or with -tags invariants, released memory is filled with 0xCC; a release too many always panics.
package batch
