package cluster

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
)

// script is a peer that says what it was given, and then hangs up.
type script struct {
	net.Conn
	bytes.Reader
}

func (s *script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return len(b), nil }
func (s *script) Close() error                     { return nil }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// fuzzLimit bounds an answer in the fuzz tests, in bytes.
const fuzzLimit = 1 << 16

func scripted(said []byte, v *versions) (*Conn, *batch.Pool) {
	s := &script{}
	s.Reset(said)
	pool := batch.NewPool(0)
	c := newConn(peer{"west", 1, "k:1"}, "kferry", s, s, ConnOptions{MaxResponseBytes: fuzzLimit, MaxSmallBytes: fuzzLimit, MaxOutstanding: 8}.withDefaults(pool), new(requests))
	if v != nil {
		c.versions = v
	}
	return c, pool
}

// Whatever bytes a peer answers with: answers within the limit or an error, and every buffer comes back.
func FuzzRead(f *testing.F) {
	v := allVersions(f)
	f.Add([]byte{}, int16(11))
	f.Add(frame(be32(0), []byte("body")), int16(11))
	f.Add(append(frame(be32(0), []byte{0}), frame(be32(1), []byte{1, 0, 2, 'x', 'y', 'z'})...), int16(12))
	f.Add(frame(be32(0), []byte{0xff, 0xff, 0xff, 0xff, 0x0f, 1}), int16(12))
	f.Add(frame(be32(9)), int16(4))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, int16(4))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0}, int16(4))
	f.Add([]byte{21, 3, 3, 0, 2, 2, 70}, int16(4))
	f.Fuzz(func(t *testing.T, said []byte, version int16) {
		version = minFetch + max(version, -version-1)%15
		c, pool := scripted(said, v)
		for range 4 {
			if _, err := c.Write(keyFetch, version, nil); err != nil {
				t.Fatal(err)
			}
		}
		taken := 0
		for i := range int32(4) {
			r, err := c.Read()
			if err != nil {
				if _, again := c.Read(); again != err {
					t.Fatalf("an error that does not stay: %v, then %v", err, again)
				}
				break
			}
			if taken += 8 + len(r.Body); r.Corr != i || len(r.Body) > fuzzLimit || taken > len(said) {
				t.Fatalf("answer %d: corr %d, %d bytes of %d", i, r.Corr, len(r.Body), len(said))
			}
			r.Buf.Release()
		}
		if n := pool.InUse(); n != 0 {
			t.Fatalf("%d bytes not released", n)
		}
	})
}

// Whatever a peer says in the handshake: versions within kmsg's, or an error.
func FuzzHandshake(f *testing.F) {
	body := func(version int16, keys ...kmsg.ApiVersionsResponseApiKey) []byte {
		resp := kmsg.NewPtrApiVersionsResponse()
		resp.Version, resp.ApiKeys = version, keys
		return resp.AppendTo(nil)
	}
	good := []kmsg.ApiVersionsResponseApiKey{{ApiKey: 0, MaxVersion: 13}, {ApiKey: 1, MaxVersion: 18}, {ApiKey: 17, MaxVersion: 1}, {ApiKey: 36, MaxVersion: 2}}
	f.Add(frame(be32(0), body(3, good...)))
	f.Add(append(frame(be32(0), []byte{0, 35, 0, 0, 0, 0}), frame(be32(1), body(0, good...))...))
	f.Add(frame(be32(0), body(3, kmsg.ApiVersionsResponseApiKey{ApiKey: 1, MinVersion: -32768, MaxVersion: 32767})))
	f.Add(frame(be32(0), []byte{0}))
	f.Add(append(append(frame(be32(0), body(3, good...)), frame(be32(1), []byte{0, 0, 0, 0, 0, 0})...), frame(be32(2), []byte{0, 0, 0, 0, 0, 0, 0, 0})...))
	f.Fuzz(func(t *testing.T, said []byte) {
		c, pool := scripted(said, nil)
		if err := c.agree(t.Context()); err == nil {
			for key := range int16(kmsg.MaxKey + 1) {
				v, ok := c.Version(key)
				if req := kmsg.RequestForKey(key); ok && (req == nil || v < 0 || v > req.MaxVersion()) {
					t.Fatalf("key %d at version %d", key, v)
				}
			}
			c.authenticate(t.Context(), newLogins(user("SCRAM-SHA-256", "secret"), ""))
		}
		if n := pool.InUse(); n != 0 {
			t.Fatalf("%d bytes not released", n)
		}
	})
}

// Whatever metadata say: a snapshot that looks up without a panic, or an error.
func FuzzTopology(f *testing.F) {
	m := metadata("orders", 7, Partition{1, 5}, Partition{2, 0})
	m.Version = 12
	f.Add(m.AppendTo(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, said []byte) {
		m := kmsg.NewPtrMetadataResponse()
		m.Version = 12
		if len(said) > fuzzLimit || m.ReadFrom(said) != nil {
			return
		}
		topo, err := newTopology().next(m)
		if err != nil {
			return
		}
		if again, err := topo.next(m); err != nil || again.Version < topo.Version {
			t.Fatalf("the same again: %v", err)
		}
		for name, topic := range topo.Topics {
			if n := int32(len(topic.Partitions)); n > 0 {
				topo.Leader(name, n-1)
				topo.Leader(name, n)
			}
		}
	})
}
