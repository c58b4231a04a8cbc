package e2e

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"kferry/pipeline/kafkatest"
)

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// TestCopy writes with Kafka's own producer and reads with its own consumer: 1, 7 and 50 partitions, all codecs, and
// every shape of record. The record sections in the target's log equal the source's.
func TestCopy(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to func(*testing.T) *kafkatest.Kafka
	}{
		{"44to44", east, west},
		{"39to44", old, west},
		{"28to44", oldest, west},
		{"44to39", east, old},
		{"44to28", east, oldest},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := c.from(t), c.to(t)
			partitions := map[string]int32{name("one", c.name): 1, name("seven", c.name): 7, name("fifty", c.name): 50}
			var records []kafkatest.Record
			for topic, n := range partitions {
				create(t, from, topic, n, "max.message.bytes", "2000000")
				records = append(records, shapes(topic, n)...)
			}
			write(t, from, records)
			cfg := config(from, to, c.name, ".*"+c.name)
			job(t, cfg)
			for topic, n := range partitions {
				copied := alias(cfg) + "." + topic
				got, err := kafkatest.ReadJava(t.Context(), to, copied)
				if err != nil {
					t.Fatal(err)
				}
				if d := kafkatest.Diff(kafkatest.Of(topic, records), got); d != "" {
					t.Fatalf("%s: %s", topic, d)
				}
				sameBytes(t, from, topic, to, copied, n)
			}
		})
	}
}

// write produces records with Kafka's producer, a share of them with each codec.
func write(t *testing.T, k *kafkatest.Kafka, records []kafkatest.Record) {
	t.Helper()
	w, err := kafkatest.StartWriter(k, map[string]string{"linger.ms": "20"})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for i, codec := range codecs {
		if err := w.Codec(codec); err != nil {
			t.Fatal(err)
		}
		for _, r := range records[i*len(records)/len(codecs) : (i+1)*len(records)/len(codecs)] {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// shapes gives records of every shape to each partition: null and empty keys and values, tombstones, headers that are
// null, empty or repeated, 1 byte to 900 KB.
func shapes(topic string, partitions int32) []kafkatest.Record {
	seed := sha256.Sum256([]byte(topic))
	random := rand.New(rand.NewChaCha8(seed))
	blob := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(random.UintN(26)) + 'a'
		}
		return b
	}
	var out []kafkatest.Record
	at := time.Now().Add(-time.Hour).UnixMilli()
	add := func(p int32, key, value []byte, headers ...kafkatest.Header) {
		at += int64(random.IntN(50)) - 10
		out = append(out, kafkatest.Record{Topic: topic, Partition: p, Key: key, Value: value, Headers: headers, Timestamp: at})
	}
	for round := range 10 {
		for p := range partitions {
			key := fmt.Appendf(nil, "key-%d-%d", p, round)
			add(p, key, blob(1+random.IntN(200)))
			add(p, nil, blob(1))
			add(p, []byte{}, []byte{})
			add(p, key, nil)
			add(p, nil, nil)
			add(p, key, blob(300), kafkatest.Header{Key: "a", Value: []byte("1")}, kafkatest.Header{Key: "a", Value: []byte("2")},
				kafkatest.Header{Key: "", Value: nil}, kafkatest.Header{Key: "b", Value: []byte{}})
		}
	}
	for p := range min(partitions, 7) {
		add(p, []byte("large"), blob(900_000>>p))
	}
	return out
}
