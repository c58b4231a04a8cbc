package pipeline

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"kferry/batch"
)

// decode takes a batch apart. Beside batch/recode it is the one place outside of tests where kferry looks at records.
func decode(b batch.Batch) ([]*kgo.Record, error) {
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.RecordBatches = b.Bytes()
	rp.HighWatermark, rp.LastStableOffset = -1, -1
	opts := kgo.ProcessFetchPartitionOpts{KeepControlRecords: true}
	p, _ := kgo.ProcessFetchPartition(opts, &rp, kgo.DefaultDecompressor(), nil)
	if p.Err != nil {
		return nil, p.Err
	}
	if want := b.Count(); want >= 0 && len(p.Records) != int(want) {
		return nil, fmt.Errorf("%d records where the header says %d", len(p.Records), want)
	}
	return p.Records, nil
}

// contentsOf is the fingerprint of the records themselves, whatever their codec; without their times, which may be the log's.
func contentsOf(b batch.Batch) (fingerprint, error) {
	records, err := decode(b)
	if err != nil {
		return fingerprint{}, err
	}
	sum, size := uint32(0), 0
	add := func(field []byte) {
		length := int64(len(field))
		if field == nil {
			length = -1
		}
		sum = crc32.Update(sum, contents, binary.AppendVarint(nil, length))
		sum = crc32.Update(sum, contents, field)
		size += len(field)
	}
	for _, r := range records {
		add(r.Key)
		add(r.Value)
		for _, h := range r.Headers {
			add([]byte(h.Key))
			add(h.Value)
		}
	}
	return fingerprint{payload: sum, size: size, count: int32(len(records))}, nil
}

var contents = crc32.MakeTable(crc32.Castagnoli)

// unlike says in what two records differ, without showing what is in them; empty if in nothing. lax leaves out the time.
func unlike(s, d *kgo.Record, lax bool) string {
	if text := unlikeBytes("key", s.Key, d.Key); text != "" {
		return text
	}
	if text := unlikeBytes("value", s.Value, d.Value); text != "" {
		return text
	}
	if len(s.Headers) != len(d.Headers) {
		return fmt.Sprintf("the source's record has %d headers, the target's %d", len(s.Headers), len(d.Headers))
	}
	for i := range s.Headers {
		if text := unlikeBytes(fmt.Sprintf("key of header %d", i), []byte(s.Headers[i].Key), []byte(d.Headers[i].Key)); text != "" {
			return text
		}
		if text := unlikeBytes(fmt.Sprintf("value of header %d", i), s.Headers[i].Value, d.Headers[i].Value); text != "" {
			return text
		}
	}
	if s, d := s.Timestamp.UnixMilli(), d.Timestamp.UnixMilli(); s != d && !lax {
		return fmt.Sprintf("the timestamp is %d ms on the source, %d on the target", s, d)
	}
	return ""
}

func unlikeBytes(what string, s, d []byte) string {
	switch {
	case bytes.Equal(s, d) && (s == nil) == (d == nil):
		return ""
	case s == nil || d == nil:
		return fmt.Sprintf("the %s is %s on the source, %s on the target", what, length(s), length(d))
	}
	at := 0
	for at < min(len(s), len(d)) && s[at] == d[at] {
		at++
	}
	return fmt.Sprintf("the %s has %s on the source, %s on the target, and differs from byte %d on", what, length(s), length(d), at)
}

func length(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%d bytes", len(b))
}
