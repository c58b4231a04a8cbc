//go:build !race

package recode

import (
	"fmt"
	"testing"

	"kferry/batch"
)

// Steady work allocates at most twice a batch, in every codec.
func TestAllocs(t *testing.T) {
	for _, codec := range allCodecs {
		in := holed(codec).batch(t)
		c := NewCoder(batch.NewPool(64<<20), 4<<20)
		run := func() {
			outs, err := c.Rewrite(in, Options{})
			if err != nil {
				t.Fatal(err)
			}
			release(outs)
		}
		run()
		if n := testing.AllocsPerRun(200, run); n > 2 {
			t.Errorf("%s: %v allocations a batch", codec, n)
		}
	}
}

// holed is a batch of 1000 records that lost every tenth.
func holed(codec batch.Codec) source {
	s := numbered(codec, 1000)
	recs := s.recs[:0]
	for i, r := range s.recs {
		if i%10 != 5 {
			recs = append(recs, r)
		}
	}
	s.recs = recs
	return s
}

// BenchmarkRewrite beside the codec alone: decoding and encoding the same bytes.
func BenchmarkRewrite(b *testing.B) {
	for _, codec := range allCodecs {
		s := holed(codec)
		in := s.batch(b)
		raw := len(rawRecords(s.recs, s.base, s.first))
		pool := batch.NewPool(64 << 20)
		b.Run(fmt.Sprintf("codec=%s/work=all", codec), func(b *testing.B) {
			c := NewCoder(pool, 4<<20)
			b.SetBytes(int64(raw))
			b.ReportAllocs()
			for b.Loop() {
				outs, err := c.Rewrite(in, Options{})
				if err != nil {
					b.Fatal(err)
				}
				release(outs)
			}
		})
		if codec == batch.None {
			continue
		}
		b.Run(fmt.Sprintf("codec=%s/work=codec", codec), func(b *testing.B) {
			c := NewCoder(pool, 4<<20)
			c.in = in
			b.SetBytes(int64(raw))
			for b.Loop() {
				buf, body, err := c.decode(codec, in.Payload())
				if err != nil {
					b.Fatal(err)
				}
				out, _ := c.encode(codec, body)
				buf.Release()
				out.Release()
			}
		})
	}
}
