package recode

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"kferry/batch"
)

// codecs are the encoders and decoders of one Coder, each made when it is first needed.
type codecs struct {
	src    bytes.Reader
	dst    appender
	fixed  bytes.Reader // the head of an LZ4 frame, mended
	head   [15]byte
	ungzip *gzip.Reader
	gzip   *gzip.Writer
	unlz4  *lz4.Reader
	lz4    *lz4.Writer
	unzstd *zstd.Decoder
	zstd   *zstd.Encoder
	ratio  [5]int // of the last batch by codec, rounded up: the first guess for the next
}

// zstdBlock is the most bytes that one block of zstd decodes to.
const zstdBlock = 128 << 10

// maxRatio bounds the guess: one batch of zeros must not make the next ones ask for the whole limit.
const maxRatio = 32

// decode returns the records that src holds, in a Buf that is the caller's.
func (c *Coder) decode(codec batch.Codec, src []byte) (*batch.Buf, []byte, error) {
	size := 0 // 0: not known
	var err error
	switch codec {
	case batch.Gzip, batch.LZ4, batch.Zstd:
		size = min(c.limit, len(src)*max(4, min(c.ratio[codec], maxRatio))+1)
	case batch.Snappy:
		if size, err = snappySize(src); err == nil && size > c.limit {
			err = ErrDecoded
		}
	default:
		return nil, nil, fmt.Errorf("%s: %w", codec, ErrCodec)
	}
	for err == nil {
		buf := c.pool.Get(size)
		var out []byte
		var full bool
		if out, full, err = c.decodeInto(codec, buf.Bytes()[:0], src); err == nil && !full {
			c.ratio[codec] = len(out)/max(len(src), 1) + 1
			return buf, out, nil
		}
		buf.Release()
		switch {
		case !full:
		case size >= c.limit:
			err = ErrDecoded
		default:
			size = min(c.limit, size*2)
		}
	}
	if errors.Is(err, ErrDecoded) {
		return nil, nil, fmt.Errorf("%d bytes of %s hold more than %d of records: %w", len(src), codec, c.limit, err)
	}
	return nil, nil, fmt.Errorf("decompress %s: %w: %w", codec, err, ErrRecords)
}

// decodeInto appends to dst within its capacity; full says that this was too little.
func (c *Coder) decodeInto(codec batch.Codec, dst, src []byte) (out []byte, full bool, err error) {
	c.src.Reset(src)
	switch codec {
	case batch.Gzip:
		if c.ungzip == nil {
			c.ungzip = new(gzip.Reader)
		}
		if err := c.ungzip.Reset(&c.src); err != nil {
			return nil, false, err
		}
		return readAll(dst, c.ungzip)
	case batch.LZ4:
		if c.unlz4 == nil {
			c.unlz4 = lz4.NewReader(nil)
		}
		var r io.Reader = &c.src
		if c.in.Magic() == 0 {
			r = c.lz4Head(src)
		}
		c.unlz4.Reset(r)
		return readAll(dst, c.unlz4)
	case batch.Zstd:
		if c.unzstd == nil {
			// What dst has room for is the bound: one of the window's size would refuse small batches of large encoders.
			c.unzstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true))
			if err != nil {
				return nil, false, err
			}
		}
		out, err = c.unzstd.DecodeAll(src, dst)
		// Where a block does not fit, the decoder blames the block: what counts then is the room that it had.
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || err != nil && cap(dst)-len(out) < zstdBlock {
			return nil, true, nil
		}
		return out, false, err
	default:
		out, err = unsnappy(dst, src)
		return out, false, err
	}
}

// readAll reads r to its end into dst's capacity.
func readAll(dst []byte, r io.Reader) (out []byte, full bool, err error) {
	for {
		if len(dst) == cap(dst) {
			var one [1]byte
			n, err := io.ReadFull(r, one[:])
			if n > 0 {
				return nil, true, nil
			}
			if err == io.EOF {
				err = nil
			}
			return dst, false, err
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if err == io.EOF {
			return dst, false, nil
		}
		if err != nil {
			return nil, false, err
		}
	}
}

// Snappy comes in two framings: plain, and the one of Java's SnappyOutputStream (xerial): 16 bytes, then blocks, each behind its size.
var xerial = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1}

const (
	xerialMark  = 8        // bytes that tell it from the plain framing; versions follow
	xerialBlock = 32 << 10 // bytes of records a block, as in Java
)

var errXerial = errors.New("block out of bounds")

// snappySize returns what src says that it holds.
func snappySize(src []byte) (size int, err error) {
	err = snappyBlocks(src, func(block []byte) error {
		n, err := s2.DecodedLen(block)
		size += n
		return err
	})
	return size, err
}

func unsnappy(dst, src []byte) ([]byte, error) {
	err := snappyBlocks(src, func(block []byte) error {
		n, err := s2.DecodedLen(block)
		if err != nil {
			return err
		}
		at := len(dst)
		dst = dst[:at+n]
		_, err = s2.Decode(dst[at:], block)
		return err
	})
	return dst, err
}

func snappyBlocks(src []byte, each func([]byte) error) error {
	if len(src) < len(xerial) || !bytes.Equal(src[:xerialMark], xerial[:xerialMark]) {
		return each(src)
	}
	for src = src[len(xerial):]; len(src) > 0; {
		if len(src) < 4 {
			return errXerial
		}
		n := int(int32(binary.BigEndian.Uint32(src)))
		if n < 0 || n > len(src)-4 {
			return errXerial
		}
		if err := each(src[4 : 4+n]); err != nil {
			return err
		}
		src = src[4+n:]
	}
	return nil
}

// encode compresses b. Both are valid until the Buf, which is the caller's, is released.
func (c *Coder) encode(codec batch.Codec, b []byte) (*batch.Buf, []byte) {
	var err error
	bound := len(b) + len(b)>>10 + 256 // measured for gzip, lz4 and zstd: what they cannot compress they store
	if codec == batch.Snappy {
		bound = len(xerial) + (len(b)/xerialBlock+1)*(4+s2.MaxEncodedLen(xerialBlock))
	}
	buf := c.pool.Get(bound)
	c.dst.b = buf.Bytes()[:0]
	switch codec {
	case batch.Gzip:
		if c.gzip == nil {
			c.gzip = gzip.NewWriter(nil)
		}
		c.gzip.Reset(&c.dst)
		_, err = c.gzip.Write(b)
		err = errors.Join(err, c.gzip.Close())
	case batch.LZ4:
		if c.lz4 == nil {
			c.lz4 = lz4.NewWriter(nil)
			err = c.lz4.Apply(lz4.ConcurrencyOption(1), lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false)) // as Kafka's own
		}
		c.lz4.Reset(&c.dst)
		_, e := c.lz4.Write(b)
		err = errors.Join(err, e, c.lz4.Close())
	case batch.Zstd:
		if c.zstd == nil {
			c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true))
		}
		if err == nil {
			c.dst.b = c.zstd.EncodeAll(b, c.dst.b)
		}
	case batch.Snappy:
		c.dst.b = snappy(c.dst.b, b)
	}
	if err != nil {
		panic(fmt.Sprintf("BUG: compress with %s into memory: %v", codec, err))
	}
	return buf, c.dst.b
}

// snappy appends b in xerial's framing; dst has room for it.
func snappy(dst, b []byte) []byte {
	dst = append(dst, xerial...)
	for len(b) > 0 {
		n := min(len(b), xerialBlock)
		at := len(dst) + 4
		block := s2.EncodeSnappy(dst[at:cap(dst)], b[:n])
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(block)))
		dst = dst[:at+len(block)]
		b = b[n:]
	}
	return dst
}

// appender is a writer into memory that only grows where a bound was wrong.
type appender struct{ b []byte }

func (a *appender) Write(b []byte) (int, error) {
	a.b = append(a.b, b...)
	return len(b), nil
}
