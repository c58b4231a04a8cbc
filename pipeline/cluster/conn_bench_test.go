package cluster

import (
	"fmt"
	"io"
	"net"
	"testing"
)

// One Fetch and its answer after the other over loopback; the peer is in this process, so CPU is both sides'.
func BenchmarkConn(b *testing.B) {
	for _, over := range []string{"tcp", "tls"} {
		for _, size := range []int{1 << 10, 1 << 20} {
			b.Run(fmt.Sprintf("over=%s/response=%dKiB", over, size>>10), func(b *testing.B) {
				raw, theirs := loopback(b)
				var ours net.Conn = raw
				if over == "tls" {
					ours, theirs = tlsPair(b, raw, theirs)
				}
				c := wireOver(b, ours, raw, theirs, ConnOptions{})
				background(b, func() { answerAll(theirs, size) })
				body := net.Buffers{make([]byte, 100)}
				b.ReportAllocs()
				b.SetBytes(int64(size))
				for b.Loop() {
					if _, err := c.Write(keyFetch, 11, body); err != nil {
						b.Fatal(err)
					}
					r, err := c.Read()
					if err != nil {
						b.Fatal(err)
					}
					r.Buf.Release()
				}
			})
		}
	}
}

// answerAll answers requests of 100 bytes with size bytes each.
func answerAll(nc net.Conn, size int) {
	request := make([]byte, 4+8+2+len("kferry")+100)
	answer := frame(be32(0), make([]byte, size))
	for {
		if _, err := io.ReadFull(nc, request); err != nil {
			return
		}
		copy(answer[4:8], request[8:12])
		if _, err := nc.Write(answer); err != nil {
			return
		}
	}
}

// Produce requests of 1 MiB in batches of 16 KiB, each a header and a payload, to a peer that only reads.
func BenchmarkConnWrite(b *testing.B) {
	for _, over := range []string{"tcp", "tls"} {
		b.Run("over="+over, func(b *testing.B) {
			raw, theirs := loopback(b)
			var ours net.Conn = raw
			if over == "tls" {
				ours, theirs = tlsPair(b, raw, theirs)
			}
			c := wireOver(b, ours, raw, theirs, ConnOptions{})
			background(b, func() {
				io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{theirs}, make([]byte, 256<<10))
			})
			var body net.Buffers
			for range 64 {
				body = append(body, make([]byte, 61), make([]byte, 16<<10))
			}
			b.ReportAllocs()
			b.SetBytes(64 * (61 + 16<<10))
			for b.Loop() {
				if _, err := c.Write(keyProduce, 8, body); err != nil {
					b.Fatal(err)
				}
				<-c.pending
			}
		})
	}
}
