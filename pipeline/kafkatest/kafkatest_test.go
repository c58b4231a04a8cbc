package kafkatest_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
	"go.uber.org/goleak"

	"kferry/pipeline/kafkatest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick makes a broker start on less CPU, at the cost of its speed later.
var quick = []string{"-XX:TieredStopAtLevel=1"}

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

// TestKafka is all that one broker has to be good for; its parts share it, in this order.
func TestKafka(t *testing.T) {
	security := &kafkatest.Security{User: "kferry", Password: "s3cret"}
	k := kafkatest.StartFor(t, kafkatest.Options{JVM: quick, Security: security, Authorizer: true, Proxied: true})
	for _, codec := range codecs {
		createTopic(t, k, codec, 3)
	}
	want := map[string][]kafkatest.Record{}
	t.Run("java writes in every codec", func(t *testing.T) { writeInCodecs(t, k, want) })
	t.Run("raw batches keep their codec", func(t *testing.T) { rawBatches(t, k) })
	t.Run("kill -9, restart, java reads all", func(t *testing.T) { killRestartRead(t, k, want) })
	t.Run("transactions", func(t *testing.T) { transactions(t, k) })
	t.Run("a refused record fails the writer", func(t *testing.T) { refused(t, k) })
	t.Run("listeners", func(t *testing.T) { listeners(t, k, security) })
	t.Run("a producer behind the proxy survives cuts", func(t *testing.T) { cuts(t, k) })
	t.Run("MirrorMaker", func(t *testing.T) { mirror(t, k, want["zstd"]) })
}

func writeInCodecs(t *testing.T, k *kafkatest.Kafka, want map[string][]kafkatest.Record) {
	w, err := kafkatest.StartWriter(k, map[string]string{"linger.ms": "5"})
	if err != nil {
		t.Fatal(err)
	}
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
}

func rawBatches(t *testing.T, k *kafkatest.Kafka) {
	for codec, topic := range codecs {
		records := 0
		for p := range int32(3) {
			batches, err := kafkatest.RawBatches(t.Context(), k.Bootstrap(), topic, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range batches {
				if got := int(b[22] & 7); got != codec {
					t.Errorf("%s/%d: a batch has codec %d, want %d", topic, p, got, codec)
				}
				records += int(binary.BigEndian.Uint32(b[57:]))
			}
		}
		if records != 200 {
			t.Errorf("%s: %d records in all batches, want 200", topic, records)
		}
	}
	_, err := kafkatest.RawBatches(t.Context(), k.Bootstrap(), "nowhere", 0)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("batches of no topic: %v, want %v", err, kerr.UnknownTopicOrPartition)
	}
}

func killRestartRead(t *testing.T, k *kafkatest.Kafka, want map[string][]kafkatest.Record) {
	before := k.Broker(1).Process()
	k.Kill9()
	select {
	case <-before.Done():
	default:
		t.Fatal("the broker runs after kill -9")
	}
	if err := k.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := kafkatest.ReadJava(t.Context(), k, codecs...)
	if err != nil {
		t.Fatal(err)
	}
	for _, codec := range codecs {
		if d := kafkatest.Diff(want[codec], kafkatest.Of(codec, got)); d != "" {
			t.Errorf("%s: %s", codec, d)
		}
	}
}

func transactions(t *testing.T, k *kafkatest.Kafka) {
	createTopic(t, k, "txn", 1)
	records := awkward("txn", 1, 30)
	w, err := kafkatest.StartWriter(k, map[string]string{"transactional.id": "t"})
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range []func() error{w.Commit, w.Abort, w.Commit} {
		if err := w.Begin(); err != nil {
			t.Fatal(err)
		}
		for _, r := range records[10*i : 10*i+10] {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	committed := slices.Concat(records[:10], records[20:])
	for isolation, want := range map[string][]kafkatest.Record{"read_committed": committed, "read_uncommitted": records} {
		got, err := kafkatest.ReadJavaWith(t.Context(), k, map[string]string{"isolation.level": isolation}, "txn")
		if err != nil {
			t.Fatal(err)
		}
		if d := kafkatest.Diff(want, got); d != "" {
			t.Errorf("%s: %s", isolation, d)
		}
	}
}

func refused(t *testing.T, k *kafkatest.Kafka) {
	tooLarge := kafkatest.Record{Topic: "none", Value: make([]byte, 1_500_000)}
	err := kafkatest.WriteJava(t.Context(), k, nil, []kafkatest.Record{tooLarge})
	if err == nil || !strings.Contains(err.Error(), "RecordTooLargeException") {
		t.Errorf("writing 1.5 MB: %v, want Kafka's RecordTooLargeException", err)
	}
}

func listeners(t *testing.T, k *kafkatest.Kafka, s *kafkatest.Security) {
	scram := func(password string) kgo.Opt {
		return kgo.SASL(scram.Auth{User: s.User, Pass: password}.AsSha512Mechanism())
	}
	plain := kgo.SASL(plain.Auth{User: s.User, Pass: s.Password}.AsMechanism())
	for _, c := range []struct {
		name     string
		listener kafkatest.Listener
		opts     []kgo.Opt
		want     string // in the error; empty: it connects
	}{
		{"tls", kafkatest.TLS, []kgo.Opt{dialTLS(t, s.CA, nil)}, ""},
		{"tls, unknown CA", kafkatest.TLS, []kgo.Opt{dialTLS(t, s.OtherCA, nil)}, "certificate signed by unknown authority"},
		{"tls, expired broker", kafkatest.ExpiredTLS, []kgo.Opt{dialTLS(t, s.CA, nil)}, "certificate has expired"},
		{"mutual tls", kafkatest.MutualTLS, []kgo.Opt{dialTLS(t, s.CA, &s.Client)}, ""},
		{"mutual tls, no certificate", kafkatest.MutualTLS, []kgo.Opt{dialTLS(t, s.CA, nil)}, "tls:"},
		{"mutual tls, expired", kafkatest.MutualTLS, []kgo.Opt{dialTLS(t, s.CA, &s.Expired)}, "tls:"},
		{"mutual tls, foreign", kafkatest.MutualTLS, []kgo.Opt{dialTLS(t, s.CA, &s.Foreign)}, "tls:"},
		{"scram in tls", kafkatest.SASLTLS, []kgo.Opt{dialTLS(t, s.CA, nil), scram(s.Password)}, ""},
		{"plain in tls", kafkatest.SASLTLS, []kgo.Opt{dialTLS(t, s.CA, nil), plain}, ""},
		{"scram in clear", kafkatest.SASLPlaintext, []kgo.Opt{scram(s.Password)}, ""},
		{"scram, wrong password", kafkatest.SASLPlaintext, []kgo.Opt{scram("guess")}, "SASL_AUTHENTICATION_FAILED"},
		{"proxied", kafkatest.Proxied, nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, err := kgo.NewClient(append(c.opts, kgo.SeedBrokers(k.BootstrapOn(c.listener)...), kgo.RetryTimeout(time.Second))...)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			err = client.Ping(t.Context())
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("ping: %v, want %q", err, c.want)
			}
		})
	}
}

func dialTLS(t *testing.T, ca string, client *kafkatest.Certificate) kgo.Opt {
	t.Helper()
	pem, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(pem)
	if client != nil {
		pair, err := tls.LoadX509KeyPair(client.Cert, client.Key)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return kgo.DialTLSConfig(config)
}

// cuts writes through the proxy while its connections are cut, each time behind a few more bytes.
func cuts(t *testing.T, k *kafkatest.Kafka) {
	createTopic(t, k, "cuts", 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(k.BootstrapOn(kafkatest.Proxied)...), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var want []kafkatest.Record
	for i := range 20 {
		switch i % 4 {
		case 1:
			k.Proxy.CutAll(kafkatest.RST)
		case 2:
			k.Proxy.Requests.CutAfter(int64(10*i), kafkatest.RST)
		case 3:
			k.Proxy.Answers.CutAfter(int64(i), kafkatest.FIN)
		}
		r := kafkatest.Record{Topic: "cuts", Key: fmt.Append(nil, i), Value: []byte("v"), Timestamp: int64(i)}
		want = append(want, r)
		got := client.ProduceSync(t.Context(), &kgo.Record{Topic: r.Topic, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)})
		if err := got.FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if n := k.Proxy.Accepted(); n < 15 {
		t.Errorf("%d connections through the proxy, want one more with every cut", n)
	}
	got, err := kafkatest.ReadJava(t.Context(), k, "cuts")
	if err != nil {
		t.Fatal(err)
	}
	if d := kafkatest.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// mirror runs MirrorMaker 2 from the broker to itself, under two names.
func mirror(t *testing.T, k *kafkatest.Kafka, want []kafkatest.Record) {
	m, err := kafkatest.StartMM2(t.Context(), kafkatest.MM2Options{Properties: kafkatest.MirrorLink("a", k, "b", k, "zstd")})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Stop()
	client, err := k.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	deadline, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	for tick := time.Tick(500 * time.Millisecond); ; {
		ends, err := kadm.NewClient(client).ListEndOffsets(t.Context(), "a.zstd")
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		ends.Each(func(o kadm.ListedOffset) { n += max(0, o.Offset) })
		if n == int64(len(want)) {
			break
		}
		select {
		case <-tick:
		case <-m.Done():
			t.Fatalf("MirrorMaker ended\n%s", m.Tail())
		case <-deadline.Done():
			t.Fatalf("%d records after 90 s, want %d\n%s", n, len(want), m.Tail())
		}
	}
	user, sys, err := m.CPU()
	if err != nil || user < time.Second || sys <= 0 {
		t.Errorf("MirrorMaker's cpu: user %v, sys %v, %v; a JVM that has started has used more", user, sys, err)
	}
	got, err := kafkatest.ReadJava(t.Context(), k, "a.zstd")
	if err != nil {
		t.Fatal(err)
	}
	if d := kafkatest.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestOlderKafka writes and reads with an older version's own clients, and again after a restart.
func TestOlderKafka(t *testing.T) {
	for _, opts := range []kafkatest.Options{
		{Version: "3.9.2", JVM: quick, Security: &kafkatest.Security{User: "kferry", Password: "s3cret"}},
		{Version: "2.8.2", JVM: quick},
	} {
		t.Run(opts.Version, func(t *testing.T) {
			k := kafkatest.StartFor(t, opts)
			createTopic(t, k, "t", 3)
			want := awkward("t", 3, 100)
			if err := kafkatest.WriteJava(t.Context(), k, map[string]string{"compression.type": "zstd"}, want); err != nil {
				t.Fatal(err)
			}
			for _, end := range []func(){k.Broker(1).Stop, k.Kill9} {
				end()
				if err := k.Restart(t.Context()); err != nil {
					t.Fatal(err)
				}
				got, err := kafkatest.ReadJava(t.Context(), k, "t")
				if err != nil {
					t.Fatal(err)
				}
				if d := kafkatest.Diff(want, got); d != "" {
					t.Error(d)
				}
			}
		})
	}
}

func TestZooKeeperHasNoSecurity(t *testing.T) {
	_, err := kafkatest.Start(t.Context(), kafkatest.Options{Version: "2.8.2", Authorizer: true})
	const want = "start Kafka 2.8.2: Security and Authorizer are written for KRaft: take version 3.7 or later"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestThreeBrokers loses a broker and gets it back: a partition of three replicas moves its leader away and keeps all.
func TestThreeBrokers(t *testing.T) {
	k := kafkatest.StartFor(t, kafkatest.Options{Brokers: 3, JVM: quick})
	createTopic(t, k, "t", 3)
	client, err := k.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	produce := func(n int) {
		t.Helper()
		for p := range int32(3) {
			r := &kgo.Record{Topic: "t", Partition: p, Value: fmt.Append(nil, n)}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	produce(1)
	k.Broker(2).Kill9()
	produce(2)
	if err := k.Broker(2).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	produce(3)
	for p := range int32(3) {
		batches, err := kafkatest.RawBatches(t.Context(), k.Bootstrap(), "t", p)
		if err != nil || len(batches) != 3 {
			t.Errorf("t/%d: %d batches, %v, want 3", p, len(batches), err)
		}
	}
}
