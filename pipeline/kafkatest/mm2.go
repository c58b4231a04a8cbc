package kafkatest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// MM2Options says what MirrorMaker 2 StartMM2 runs.
type MM2Options struct {
	Version    string            // MM2Version if empty
	Properties map[string]string // mm2.properties; MirrorLink has the least that works
	Dir        string            // configuration and log; empty: a temporary folder that Stop removes
	Heap       string            // -Xmx; "1g" if empty
}

// MM2 is a running MirrorMaker 2, one process with every flow of its properties. Its first record is on the target some
// 10-16 s after the start.
type MM2 struct {
	*Process
	dir  string
	temp bool
}

// StartMM2 starts MirrorMaker 2; the context bounds fetching its jars alone. The caller stops it.
func StartMM2(ctx context.Context, opts MM2Options) (*MM2, error) {
	if opts.Version == "" {
		opts.Version = MM2Version
	}
	if opts.Heap == "" {
		opts.Heap = "1g"
	}
	classPath, err := MM2Jars(opts.Version).ClassPath(ctx)
	if err != nil {
		return nil, err
	}
	m := &MM2{dir: opts.Dir}
	if m.dir == "" {
		m.temp = true
		if m.dir, err = os.MkdirTemp("", "kferry-mm2-"); err != nil {
			return nil, err
		}
	}
	if m.Process, err = m.launch(classPath, opts); err != nil {
		m.clean()
		return nil, fmt.Errorf("start MirrorMaker %s: %w", opts.Version, err)
	}
	return m, nil
}

func (m *MM2) launch(classPath string, opts MM2Options) (*Process, error) {
	config, logs := filepath.Join(m.dir, "mm2.properties"), filepath.Join(m.dir, "logging.properties")
	if err := writeProperties(config, opts.Properties); err != nil {
		return nil, err
	}
	if err := os.WriteFile(logs, []byte(logging(opts.Version, "INFO", stdout)), 0o644); err != nil {
		return nil, err
	}
	return StartProcess(Command{
		Name: "java",
		Args: []string{"-Xms256m", "-Xmx" + opts.Heap, loggingFlag(opts.Version, logs), "-cp", classPath,
			"org.apache.kafka.connect.mirror.MirrorMaker", config},
		Dir: m.dir,
		Log: filepath.Join(m.dir, "mm2.log"),
	})
}

// Stop ends MirrorMaker 2 in good order.
func (m *MM2) Stop() {
	m.Process.Stop()
	m.clean()
}

func (m *MM2) clean() {
	if m.temp {
		_ = os.RemoveAll(m.dir)
	}
}

// MirrorLink is the properties of one flow between two Kafkas, named by their aliases, with replication factors of 1
// and no heartbeats, which would start a second flow the other way round. The topics are MM2's: a comma list of regular
// expressions.
func MirrorLink(source string, from *Kafka, target string, to *Kafka, topics string) map[string]string {
	flow := source + "->" + target
	props := map[string]string{
		"clusters":                        source + "," + target,
		source + ".bootstrap.servers":     strings.Join(from.Bootstrap(), ","),
		target + ".bootstrap.servers":     strings.Join(to.Bootstrap(), ","),
		flow + ".enabled":                 "true",
		flow + ".topics":                  topics,
		"emit.heartbeats.enabled":         "false",
		"refresh.topics.interval.seconds": "5",
	}
	for _, prefix := range []string{"", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.", "offset.storage.", "status.storage.", "config.storage."} {
		props[prefix+"replication.factor"] = "1"
	}
	return props
}
