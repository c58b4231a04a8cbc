package recode

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"kferry/batch"
)

// Options say what a batch has to be for its target.
type Options struct {
	From           int64 // records with lower offsets are left out
	MaxBytes       int   // of a batch on the wire, 0 without a bound
	KeepAppendTime bool  // a batch with LogAppendTime goes out with that time as each record's own
	Avoid          uint8 // codecs that are not to be used, a bit for each by its number; None always is
}

// Out is a batch of format 2 with the base offset 0, dense, without an owner, its checksum new. Its reference is the caller's.
type Out struct {
	Batch batch.Batch
	Runs  []Run // in the order of the records
}

// Run is a row of N records with the source offsets Src, Src+1, … and the offset deltas Delta, Delta+1, … in their new batch.
type Run struct {
	Src   int64
	Delta int32
	N     int32
}

// MaxDecoded is the largest limit in bytes for the records of one batch: encoded they still fit into one batch.Buf.
const MaxDecoded = batch.MaxBuf / 2

// Coder re-encodes. One goroutine at a time uses it.
type Coder struct {
	pool  *batch.Pool
	limit int
	codecs

	in     batch.Batch
	opts   Options
	codec  batch.Codec // of what goes out
	bits   uint16      // its other attributes
	first  int64       // what its timestamp deltas count from
	outs   []Out
	whole  []Run // of all that goes out, as if in one batch
	mapped int   // of whole, those that the outs so far have to the end
	runs   []Run // of the outs
	views  []batch.Batch
}

// NewCoder returns a Coder with buffers from pool. A batch's records may take limit bytes once they are decompressed, at most MaxDecoded.
func NewCoder(pool *batch.Pool, limit int) *Coder {
	return &Coder{pool: pool, limit: min(limit, MaxDecoded)}
}

// Rewrite makes of in, which it borrows, the batches that o asks for: none if nothing is left, several if one would be larger than
// o.MaxBytes. The slices are the Coder's own and valid until the next call; the batches' references are the caller's.
//
// The checksum is verified before anything is decoded. Errors: batch.ErrCRC, ErrCodec, ErrRecords, ErrDecoded, ErrTooLarge,
// wrapped.
func (c *Coder) Rewrite(in batch.Batch, o Options) ([]Out, error) {
	if err := in.Verify(); err != nil {
		return nil, err
	}
	if in.IsControl() {
		return nil, fmt.Errorf("a transaction's marker: %w", ErrRecords)
	}
	c.in, c.opts, c.codec = in, o, choose(in.Codec(), o.Avoid)
	c.outs, c.whole, c.mapped, c.runs = c.outs[:0], c.whole[:0], 0, c.runs[:0]
	var err error
	switch {
	case in.Magic() < 2:
		c.bits = 0
		err = c.rewriteOld()
	default:
		c.bits = uint16(in.Attributes()) &^ sourceBits
		if c.first = in.BaseTimestamp(); c.keepTime() {
			c.first = in.MaxTimestamp()
		}
		err = c.rewrite()
	}
	c.in = batch.Batch{}
	if err != nil {
		for _, out := range c.outs {
			out.Batch.Release()
		}
		return nil, err
	}
	return c.outs, nil
}

// choose returns codec, or if it is to be avoided the first of the others that is not.
func choose(codec batch.Codec, avoid uint8) batch.Codec {
	if avoid&(1<<codec) == 0 {
		return codec
	}
	for _, other := range []batch.Codec{batch.LZ4, batch.Snappy, batch.Gzip} {
		if avoid&(1<<other) == 0 {
			return other
		}
	}
	return batch.None
}

func (c *Coder) rewrite() error {
	src := c.in.Payload()
	var buf *batch.Buf
	var err error
	if c.in.Codec() == batch.None {
		if len(src) > c.limit {
			return fmt.Errorf("%d bytes of records, the limit is %d: %w", len(src), c.limit, ErrDecoded)
		}
		buf = c.pool.Get(len(src))
	} else {
		if buf, src, err = c.decode(c.in.Codec(), src); err != nil {
			return err
		}
	}
	defer buf.Release()
	body, count, newest, err := c.dense(buf.Bytes(), src)
	if err != nil || count == 0 {
		return err
	}
	return c.pack(body, count, 0, newest)
}

// dense writes the records of src that stay to dst, numbered without gaps, and notes their runs. dst may be src itself: no record
// grows. newest is the newest timestamp, -1 if there is none.
func (c *Coder) dense(dst, src []byte) (body []byte, count int32, newest int64, err error) {
	base, keep := c.in.BaseOffset(), c.keepTime()
	newest = -1
	last, at := int32(-1), 0
	var read int32
	for ; len(src) > 0; read++ {
		r, size, err := next(src)
		if err == nil && (r.delta <= last || r.delta > c.in.LastOffsetDelta()) {
			err = fmt.Errorf("offset delta %d behind %d, the batch's last is %d", r.delta, last, c.in.LastOffsetDelta())
		}
		if err != nil {
			return nil, 0, 0, fmt.Errorf("record %d of %d: %w: %w", read, c.in.Count(), err, ErrRecords)
		}
		last, src = r.delta, src[size:]
		offset := base + int64(r.delta)
		if offset < c.opts.From {
			continue
		}
		if keep {
			r.time = 0
		}
		newest = max(newest, c.first+r.time)
		c.note(offset, count)
		r.delta = count
		at += r.put(dst[at:])
		count++
	}
	if read != c.in.Count() {
		return nil, 0, 0, fmt.Errorf("%d records, the header says %d: %w", read, c.in.Count(), ErrRecords)
	}
	return dst[:at], count, newest, nil
}

func (c *Coder) keepTime() bool {
	return c.opts.KeepAppendTime && c.in.Magic() > 0 && c.in.HasLogAppendTime()
}

// note says that the record with this offset has n others in front of it.
func (c *Coder) note(offset int64, n int32) {
	if i := len(c.whole) - 1; i >= 0 && offset == c.whole[i].Src+int64(c.whole[i].N) {
		c.whole[i].N++
	} else {
		c.whole = append(c.whole, Run{Src: offset, Delta: n, N: 1})
	}
}

// pack makes a batch of body, or several. first is the number of records in front of it.
func (c *Coder) pack(body []byte, count, first int32, newest int64) error {
	payload, buf := body, (*batch.Buf)(nil)
	if c.codec != batch.None {
		buf, payload = c.encode(c.codec, body)
	}
	size := batch.HeaderSize + len(payload)
	fits := size <= batch.MaxBuf && (c.opts.MaxBytes <= 0 || size <= c.opts.MaxBytes)
	if fits {
		c.emit(payload, count, first, newest)
	}
	if buf != nil {
		buf.Release()
	}
	switch {
	case fits:
		return nil
	case count == 1:
		return fmt.Errorf("the record at offset %d makes a batch of %d bytes, the limit is %d: %w", c.srcOf(first), size, c.opts.MaxBytes, ErrTooLarge)
	}
	// At the first record behind the middle: a function of the bytes alone.
	left, n := 0, int32(0)
	for left < len(body)/2 && n < count-1 {
		_, size, err := next(body[left:])
		if err != nil {
			panic("BUG: own records: " + err.Error())
		}
		left, n = left+size, n+1
	}
	if err := c.repack(body[:left], n, first, 0); err != nil {
		return err
	}
	return c.repack(body[left:], count-n, first+n, n)
}

// repack packs a part of what was packed, its records now numbered from less on.
func (c *Coder) repack(body []byte, count, first, less int32) error {
	newest, at := int64(-1), 0
	for src := body; len(src) > 0; {
		r, size, err := next(src)
		if err != nil {
			panic("BUG: own records: " + err.Error())
		}
		src = src[size:]
		newest = max(newest, c.first+r.time)
		r.delta -= less
		at += r.put(body[at:])
	}
	return c.pack(body[:at], count, first, newest)
}

// srcOf returns the source offset of the record that has n others in front of it.
func (c *Coder) srcOf(n int32) int64 {
	for _, r := range c.whole {
		if n < r.Delta+r.N {
			return r.Src + int64(n-r.Delta)
		}
	}
	return math.MinInt64
}

// Attribute bits that say how the source keeps a batch, and are not the target's business; see batch.Patch.
const sourceBits = 0x07 | 0x08 | 0x10 | 0x40 // codec, LogAppendTime, transactional, delete horizon

// emit adds the batch of payload to the outs.
func (c *Coder) emit(payload []byte, count, first int32, newest int64) {
	buf := c.pool.Get(batch.HeaderSize + len(payload))
	b := buf.Bytes()
	copy(b[batch.HeaderSize:], payload)
	be := binary.BigEndian
	be.PutUint64(b, 0)                     // base offset
	be.PutUint32(b[8:], uint32(len(b)-12)) // length
	be.PutUint32(b[12:], math.MaxUint32)   // leader epoch -1
	b[16] = 2                              // magic
	be.PutUint16(b[21:], c.bits|uint16(c.codec))
	be.PutUint32(b[23:], uint32(count-1)) // last offset delta
	be.PutUint64(b[27:], uint64(c.first))
	be.PutUint64(b[35:], uint64(newest)) // max timestamp
	be.PutUint64(b[43:], math.MaxUint64) // producer id -1
	be.PutUint16(b[51:], math.MaxUint16) // producer epoch -1
	be.PutUint32(b[53:], math.MaxUint32) // base sequence -1
	be.PutUint32(b[57:], uint32(count))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], castagnoli))

	views, _, err := batch.Scan(c.views[:0], buf, b)
	if err != nil || len(views) != 1 {
		panic(fmt.Sprintf("BUG: own batch of %d bytes: %v", len(b), err))
	}
	buf.Release() // the view has its own
	at := len(c.runs)
	for ; c.mapped < len(c.whole) && c.whole[c.mapped].Delta < first+count; c.mapped++ {
		r := c.whole[c.mapped]
		from, to := max(r.Delta, first), min(r.Delta+r.N, first+count)
		c.runs = append(c.runs, Run{Src: r.Src + int64(from-r.Delta), Delta: from - first, N: to - from})
		if to < r.Delta+r.N {
			break // the rest is in the next out
		}
	}
	c.outs = append(c.outs, Out{Batch: views[0], Runs: c.runs[at:len(c.runs):len(c.runs)]})
	views[0] = batch.Batch{}
	c.views = views[:0]
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
