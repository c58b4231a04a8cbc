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
//	offset  size  summed  field
//	     0     8  no      base offset
//	     8     4  no      length of what follows
//	    12     4  no      partition leader epoch
//	    16     1  no      magic, 2
//	    17     4  no      CRC-32C of 21..end
//	    21     2  yes     attributes
//	    23     4  yes     last offset delta
//	    27     8  yes     base timestamp, ms
//	    35     8  yes     max timestamp, ms
//	    43     8  yes     producer id
//	    51     2  yes     producer epoch
//	    53     4  yes     base sequence
//	    57     4  yes     record count
//	    61     -  yes     records, compressed as one
//
// Attributes: bits 0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon (the base timestamp is then the time when
// tombstones may go, KIP-534).
//
// Formats 0 and 1 (Kafka's LegacyRecord.java) are single messages, or a wrapper around compressed ones:
//
//	offset  size  summed  field
//	     0     8  no      offset; a wrapper has that of the last message inside
//	     8     4  no      length of what follows
//	    12     4  no      CRC-32 (IEEE) of 16..end
//	    16     1  yes     magic, 0 or 1
//	    17     1  yes     attributes: bits 0-2 codec, 3 LogAppendTime
//	    18     8  yes     timestamp, ms; format 1 only
//	     -     -  yes     key and value, each behind a 4-byte length
//
// # Ownership
//
// A reference is a move, not a share: whoever takes a Batch releases it once. Every slice that a Batch returns is valid until then. Under the
// race detector, or with -tags invariants, released memory is filled with 0xCC; a release too many always panics.
package batch
