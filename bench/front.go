package bench

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// frameBytesMax is what a broker takes by default (socket.request.max.bytes).
const frameBytesMax = 100 << 20

// gatheredBytes is how much of an answer is put together before it is encrypted.
const gatheredBytes = 256 << 10

// front stands before the embedded broker of a synthetic end. It answers the APIs that move data itself, from and into memory
// that it reuses, and passes every other request to kfake, so that clients meet a whole cluster: metadata, topics, configs,
// groups, the state topic. Requests of a connection are served strictly one after the other, as Kafka does.
type front struct {
	// answer handles a request whole; false passes it on to kfake. buf is the connection's own.
	answer map[int16]func(w io.Writer, r *request, buf *scratch) (bool, error)
	// amend corrects kfake's response where only the front knows (the ends of logs that kfake does not hold).
	amend map[int16]func(req kmsg.Request, resp kmsg.Response)
	tls   *tls.Config // nil: plaintext

	mu     sync.Mutex
	conns  map[net.Conn]struct{}
	closed chan struct{}
	wg     sync.WaitGroup
}

// request is one frame: decoded by kmsg, its byte fields alias the frame.
type request struct {
	correlation int32
	body        kmsg.Request
}

// scratch is what a connection reuses between answers.
type scratch struct {
	head    []byte
	buffers net.Buffers
}

func newFront(security *Certificate) (*front, error) {
	server, err := security.server()
	return &front{tls: server, conns: make(map[net.Conn]struct{}), closed: make(chan struct{})}, err
}

// listen is kfake's ListenFn: kfake gets the far end of a pipe for each connection that comes in.
func (f *front) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	return &frontListener{Listener: l, front: f}, nil
}

type frontListener struct {
	net.Listener
	front *front
}

func (l *frontListener) Accept() (net.Conn, error) {
	for {
		client, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.front.tls != nil {
			client = tls.Server(client, l.front.tls)
		}
		near, far := net.Pipe()
		if l.front.start(client, near) {
			return far, nil
		}
	}
}

func (f *front) start(client, kfake net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-f.closed:
		client.Close()
		return false
	default:
	}
	f.conns[client] = struct{}{}
	f.wg.Go(func() {
		f.serve(client, kfake)
		client.Close()
		kfake.Close()
		f.mu.Lock()
		delete(f.conns, client)
		f.mu.Unlock()
	})
	return true
}

// close cuts every connection and waits for their goroutines. It is called once, after kfake's own Close.
func (f *front) close() {
	f.mu.Lock()
	close(f.closed)
	for c := range f.conns {
		c.Close()
	}
	f.mu.Unlock()
	f.wg.Wait()
}

// serve ends with the connection: a client that leaves and a frame that cannot be read are the same to it.
func (f *front) serve(client, kfake net.Conn) {
	var frame, answer []byte
	var buf scratch
	out, flush := io.Writer(client), func() error { return nil }
	if f.tls != nil { // each write would become a TLS record of its own, and the pieces of an answer are small
		gathered := bufio.NewWriterSize(client, gatheredBytes)
		out, flush = gathered, gathered.Flush
	}
	for {
		var err error
		if frame, err = readFrame(client, frame); err != nil {
			return
		}
		key := int16(binary.BigEndian.Uint16(frame[4:]))
		answerIt, amendIt := f.answer[key], f.amend[key]
		var r *request
		if answerIt != nil || amendIt != nil {
			if r, err = parseRequest(frame); err != nil {
				return
			}
		}
		if answerIt != nil {
			done, err := answerIt(out, r, &buf)
			if err != nil {
				return
			}
			if done {
				if flush() != nil {
					return
				}
				continue
			}
		}
		if _, err = kfake.Write(frame); err != nil {
			return
		}
		if answer, err = readFrame(kfake, answer); err != nil {
			return
		}
		if amendIt != nil {
			if answer, err = amendFrame(answer, r, amendIt); err != nil {
				return
			}
		}
		if _, err = client.Write(answer); err != nil {
			return
		}
	}
}

// readFrame reads one frame, its four length bytes included, into b if that is large enough.
func readFrame(r io.Reader, b []byte) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return b, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 8 || n > frameBytesMax {
		return b, fmt.Errorf("frame of %d B, want 8 to %d", n, frameBytesMax)
	}
	if cap(b) < int(n)+4 {
		b = make([]byte, max(int(n)+4, 2*cap(b)))
	}
	b = b[:n+4]
	copy(b, size[:])
	_, err := io.ReadFull(r, b[4:])
	return b, err
}

func parseRequest(frame []byte) (*request, error) {
	reader := kbin.Reader{Src: frame[4:]}
	key, version, correlation := reader.Int16(), reader.Int16(), reader.Int32()
	reader.NullableString() // client id
	body := kmsg.RequestForKey(key)
	body.SetVersion(version)
	if body.IsFlexible() {
		kmsg.SkipTags(&reader)
	}
	if !reader.Ok() {
		return nil, errors.New("request header cut short")
	}
	if err := body.ReadFrom(reader.Src); err != nil {
		return nil, fmt.Errorf("decode %s v%d: %w", kmsg.NameForKey(key), version, err)
	}
	return &request{correlation: correlation, body: body}, nil
}

func amendFrame(frame []byte, r *request, amend func(kmsg.Request, kmsg.Response)) ([]byte, error) {
	resp := r.body.ResponseKind()
	head := headerBytes(resp)
	if err := resp.ReadFrom(frame[head:]); err != nil {
		return frame, fmt.Errorf("decode the answer to %s: %w", kmsg.NameForKey(r.body.Key()), err)
	}
	amend(r.body, resp)
	return appendResponse(nil, r.correlation, resp), nil
}

// headerBytes is the length of a response's frame before its body: size, correlation id and, where flexible, an empty tag section.
func headerBytes(resp kmsg.Response) int {
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		return 9
	}
	return 8
}

// appendHeader starts a frame; its size is set by whoever knows the end.
func appendHeader(dst []byte, correlation int32, resp kmsg.Response) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if headerBytes(resp) == 9 {
		dst = append(dst, 0)
	}
	return dst
}

func appendResponse(dst []byte, correlation int32, resp kmsg.Response) []byte {
	start := len(dst)
	dst = resp.AppendTo(appendHeader(dst, correlation, resp))
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-4))
	return dst
}
