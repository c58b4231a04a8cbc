package kafkatest

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Values of the topic config message.format.version, which brokers before 3.0 obey.
const (
	Format0 = "0.9.0"
	Format1 = "0.10.2"
	Format2 = "2.8"
)

const formatConfig = "message.format.version"

var magics = map[string]int8{Format0: 0, Format1: 1, Format2: 2}

// oldCodecs are those of formats 0 and 1, in the order of their ids.
var oldCodecs = []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression()}

// OldFormat makes a log of message format 0 or 1, which the broker writes by converting what it gets: plain messages, then
// one compressed wrapper for each of gzip, snappy and lz4; with null and empty keys and values. Kafka 2.8.
func OldFormat(ctx context.Context, k *Kafka, topic, format string) error {
	l := newOddLog(ctx, k, topic, map[string]string{formatConfig: format})
	l.appendInCodecs()
	l.until("format "+format, func(heads []Head) bool {
		plain := len(oddRecords())
		if len(heads) != plain+len(oldCodecs)-1 || heads[len(heads)-1].Offset != int64(plain*len(oldCodecs)-1) {
			return false
		}
		for i, h := range heads {
			if h.Magic != magics[format] || h.Codec() != max(0, i-plain+1) {
				return false
			}
		}
		return true
	})
	return l.close()
}

// MixedFormats makes a log of all three formats, one after the other, as a cluster has it that was upgraded twice. Kafka 2.8.
func MixedFormats(ctx context.Context, k *Kafka, topic string) error {
	l := newOddLog(ctx, k, topic, map[string]string{formatConfig: Format0})
	for _, format := range []string{Format0, Format1, Format2} {
		l.administer("set the format of", func(admin *kadm.Client) error {
			answers, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Name: formatConfig, Value: &format}}, topic)
			if err == nil {
				err = answers[0].Err
			}
			return err
		})
		// The broker hears of it a moment later, so it is written until it has.
		l.until("format "+format, func(heads []Head) bool { return heads[len(heads)-1].Magic == magics[format] }, l.appendInCodecs)
	}
	return l.close()
}

// appendInCodecs writes a batch in each codec, without a producer id, for which the old formats have no room.
func (l *oddLog) appendInCodecs() {
	for _, codec := range oldCodecs {
		l.append("", oddRecords(), kgo.ProducerBatchCompression(codec))
		if p := l.producers[""]; p != nil { // a client has one codec
			p.Close()
			delete(l.producers, "")
		}
	}
}

// oddRecords are a record of every shape that the old formats know: they have no headers.
func oddRecords() []*kgo.Record {
	return []*kgo.Record{
		{Key: []byte("key"), Value: make([]byte, 300)},
		{Key: nil, Value: []byte("no key")},
		{Key: []byte("tombstone"), Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: nil, Value: nil},
	}
}
