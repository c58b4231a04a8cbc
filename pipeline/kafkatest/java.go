package kafkatest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed java/*.java
var programs embed.FS

// javaProgram is one of the single-file programs, running.
type javaProgram struct {
	*Process
	dir string // of its own: properties and log
}

// startJava runs a program with a properties file as its first argument, on the class path of the Kafka's own version.
func startJava(k *Kafka, name string, props map[string]string, stdin, stdout *os.File, args ...string) (*javaProgram, error) {
	classes, err := compiled(k)
	if err != nil {
		return nil, fmt.Errorf("compile the Java programs: %w", err)
	}
	dir, err := os.MkdirTemp(k.opts.Dir, strings.ToLower(name)+"-")
	if err != nil {
		return nil, err
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := writeProperties(path("client.properties"), props); err != nil {
		return nil, err
	}
	if err := os.WriteFile(path("logging.properties"), []byte(logging(k.opts.Version, "WARN", stderr)), 0o644); err != nil {
		return nil, err
	}
	p, err := StartProcess(Command{
		Name: "java",
		Args: append([]string{"-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", loggingFlag(k.opts.Version, path("logging.properties")),
			"-cp", classes + string(os.PathListSeparator) + k.classPath, name, path("client.properties")}, args...),
		Dir:    dir,
		Stdin:  stdin,
		Stdout: stdout,
		Log:    path("log"),
	})
	if err != nil {
		return nil, err
	}
	return &javaProgram{p, dir}, nil
}

// compiled is the folder with the programs' classes. The source launcher would compile at every start, which takes as
// long as the rest of it, and loses the message of an exception of another thread.
func compiled(k *Kafka) (string, error) {
	sources, err := programs.ReadDir("java")
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	texts := map[string][]byte{}
	for _, s := range sources {
		text, err := programs.ReadFile("java/" + s.Name())
		if err != nil {
			return "", err
		}
		texts[s.Name()] = text
		hash.Write(text)
	}
	return cached(fmt.Sprintf("programs-%s-%.6x", k.opts.Version, hash.Sum(nil)), func(dir string) error {
		args := []string{"--release", fmt.Sprint(minJava), "-cp", k.classPath, "-d", dir}
		for name, text := range texts {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, text, 0o644); err != nil {
				return err
			}
			args = append(args, file)
		}
		if out, err := exec.Command("javac", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("javac: %w\n%s", err, out)
		}
		return nil
	})
}

func (p *javaProgram) end() {
	p.Kill9()
	_ = os.RemoveAll(p.dir)
}

// Writer writes records with Kafka's own producer. It is for one goroutine, which has to Close it.
type Writer struct {
	program *javaProgram
	in      *os.File
	lines   *bufio.Writer
	encode  *json.Encoder
	out     *os.File
	answers *bufio.Reader
}

// StartWriter starts a producer with acks=all and the given producer properties on top ("compression.type", "linger.ms",
// "batch.size", "transactional.id"; "bootstrap.servers" if not the plaintext listener).
func StartWriter(k *Kafka, props map[string]string) (*Writer, error) {
	config := map[string]string{
		"bootstrap.servers": strings.Join(k.Bootstrap(), ","),
		"acks":              "all",
		"max.request.size":  "2000000",
	}
	maps.Copy(config, props)

	stdin, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer stdout.Close()
	p, err := startJava(k, "Writer", config, stdin, stdout)
	if err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	w := &Writer{program: p, in: in, lines: bufio.NewWriterSize(in, 1<<16), out: out, answers: bufio.NewReader(out)}
	w.encode = json.NewEncoder(w.lines)
	return w, nil
}

// Write hands one record over; that it is stored is known after Flush, Commit, Abort or Close.
func (w *Writer) Write(r Record) error {
	if err := w.encode.Encode(r); err != nil {
		return w.broken(err)
	}
	return nil
}

// Flush returns when all that was written is acknowledged.
func (w *Writer) Flush() error { return w.order("flush", "") }

// Begin starts a transaction; the producer needs a "transactional.id".
func (w *Writer) Begin() error { return w.order("begin", "") }

// Commit flushes and commits the transaction.
func (w *Writer) Commit() error { return w.order("commit", "") }

// Abort flushes, so that the records are in the log, and aborts the transaction.
func (w *Writer) Abort() error { return w.order("abort", "") }

// Codec flushes and goes on with a producer of another compression.type; not for transactions.
func (w *Writer) Codec(name string) error { return w.order("codec", name) }

func (w *Writer) order(order, codec string) error {
	if err := w.encode.Encode(struct {
		Order string `json:"order"`
		Codec string `json:"codec"`
	}{order, codec}); err != nil {
		return w.broken(err)
	}
	if err := w.lines.Flush(); err != nil {
		return w.broken(err)
	}
	answer, err := w.answers.ReadString('\n')
	if err != nil {
		return w.broken(fmt.Errorf("order %s: %w", order, err))
	}
	if answer != "done\n" {
		w.program.Kill9()
		return w.broken(fmt.Errorf("order %s: answer %q, want done", order, answer))
	}
	return nil
}

// broken adds to an error of a pipe, which breaks when the program ends, what the program said then.
func (w *Writer) broken(err error) error {
	<-w.program.Done()
	return fmt.Errorf("write with Java: %w\n%s", errors.Join(err, w.program.err), w.program.Tail())
}

// Close flushes and ends the producer. An error means that some record was not acknowledged.
func (w *Writer) Close() error {
	defer w.program.end()
	defer w.out.Close()
	err := w.lines.Flush()
	w.in.Close()
	if err != nil {
		return w.broken(err)
	}
	return w.program.Wait(context.Background())
}

// WriteJava writes the records in their order with one Java producer and returns when all are acknowledged.
func WriteJava(ctx context.Context, k *Kafka, props map[string]string, records []Record) error {
	w, err := StartWriter(k, props)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { w.program.Signal(os.Kill) })
	defer stop()
	for _, r := range records {
		if err := w.Write(r); err != nil {
			return errors.Join(err, w.Close())
		}
	}
	return w.Close()
}

// ReadJava reads the topics from their starts to their present ends with one Java consumer that reads committed records
// only. Records of one partition come in their order.
func ReadJava(ctx context.Context, k *Kafka, topics ...string) ([]Record, error) {
	return ReadJavaWith(ctx, k, nil, topics...)
}

// ReadJavaWith is ReadJava with consumer properties on top ("isolation.level", "bootstrap.servers", …).
func ReadJavaWith(ctx context.Context, k *Kafka, props map[string]string, topics ...string) ([]Record, error) {
	config := map[string]string{
		"bootstrap.servers":  strings.Join(k.Bootstrap(), ","),
		"isolation.level":    "read_committed",
		"enable.auto.commit": "false",
		"fetch.max.wait.ms":  "100",
	}
	maps.Copy(config, props)

	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	p, err := startJava(k, "Reader", config, nil, stdout, topics...)
	stdout.Close()
	if err != nil {
		return nil, err
	}
	defer p.end()
	stop := context.AfterFunc(ctx, func() { p.Signal(os.Kill) })
	defer stop()

	var records []Record
	for lines := json.NewDecoder(bufio.NewReaderSize(out, 1<<16)); ; {
		var r Record
		err := lines.Decode(&r)
		if err == io.EOF {
			break
		}
		if err != nil {
			p.Kill9()
			return nil, fmt.Errorf("read with Java, record %d: %w\n%s", len(records), err, p.Tail())
		}
		records = append(records, r)
	}
	if err := p.Wait(ctx); err != nil {
		return nil, err
	}
	return records, nil
}
