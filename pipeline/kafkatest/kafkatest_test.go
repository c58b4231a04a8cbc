package kafkatest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"go.uber.org/goleak"

	"kferry/pipeline/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// createTopic makes a topic and returns when it has a leader for every partition.
func createTopic(t *testing.T, k *kafkatest.Kafka, topic string, partitions int32) {
	t.Helper()
	client, err := k.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := kadm.NewClient(client).CreateTopic(t.Context(), partitions, -1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

// awkward is n records that differ in all that a record can differ in.
func awkward(topic string, partitions int32, n int) []kafkatest.Record {
	var records []kafkatest.Record
	for i := range n {
		r := kafkatest.Record{
			Topic:     topic,
			Partition: int32(i) % partitions,
			Key:       fmt.Appendf(nil, "k%d", i),
			Value:     []byte(strings.Repeat(fmt.Sprintf("v%d ", i), 1+i%100)),
			Headers:   []kafkatest.Header{{Key: "n", Value: fmt.Append(nil, i)}},
			Timestamp: 1_500_000_000_000 + int64(i), // long before now: retention has to let it be
		}
		switch i % 10 {
		case 1:
			r.Key = nil
		case 2:
			r.Value = nil
		case 3:
			r.Key, r.Value = []byte{}, []byte{}
		case 4:
			r.Headers = nil
		case 5:
			r.Headers = []kafkatest.Header{{Key: "a", Value: nil}, {Key: "b", Value: []byte{}}, {Key: "a", Value: []byte{0xff, 0}}}
		case 6:
			r.Headers = []kafkatest.Header{{Key: "", Value: []byte("ключ")}}
		case 7:
			r.Value = []byte{0, 0xfe, '\n', '"', '\\'}
		}
		records = append(records, r)
	}
	records[n/2].Value = make([]byte, 900_000)
	return records
}

func TestWriteKillRestartRead(t *testing.T) {
	k := kafkatest.StartFor(t, kafkatest.Options{})
	for _, codec := range codecs {
		createTopic(t, k, codec, 3)
	}

	w, err := kafkatest.StartWriter(k, map[string]string{"linger.ms": "5"})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]kafkatest.Record{}
	for _, codec := range codecs {
		if err := w.Codec(codec); err != nil {
			t.Fatal(err)
		}
		want[codec] = awkward(codec, 3, 200)
		for _, r := range want[codec] {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}

	k.Kill9()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := k.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	got, err := kafkatest.ReadJava(ctx, k, codecs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, codec := range codecs {
		if d := kafkatest.Diff(want[codec], kafkatest.Of(codec, got)); d != "" {
			t.Errorf("%s: %s", codec, d)
		}
	}
}
