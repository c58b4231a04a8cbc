package kafkatest_test

import (
	"testing"

	"kferry/pipeline/kafkatest"
)

func TestDiff(t *testing.T) {
	record := func(change func(*kafkatest.Record)) kafkatest.Record {
		r := kafkatest.Record{Topic: "t", Partition: 1, Offset: 7, Key: []byte("k"), Value: []byte("v"), Timestamp: 5,
			Headers: []kafkatest.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}}}
		change(&r)
		return r
	}
	same := record(func(*kafkatest.Record) {})
	for _, c := range []struct {
		got  []kafkatest.Record
		want string
	}{
		{[]kafkatest.Record{same}, ""},
		{[]kafkatest.Record{record(func(r *kafkatest.Record) { r.Topic, r.Offset, r.TimestampType = "east.t", 9, "CreateTime" })}, ""},
		{nil, `partition 1: 0 records, want 1; the first missing is {t/1@7 key "k" value "v" ts 5 "a"="1" "a"=null}`},
		{[]kafkatest.Record{same, same}, `partition 1: 2 records, want 1; the first surplus is {t/1@7 key "k" value "v" ts 5 "a"="1" "a"=null}`},
		{[]kafkatest.Record{record(func(r *kafkatest.Record) { r.Partition = 0 })},
			`partition 0: 1 records, want 0; the first surplus is {t/0@7 key "k" value "v" ts 5 "a"="1" "a"=null}`},
		{[]kafkatest.Record{record(func(r *kafkatest.Record) { r.Key = nil })},
			`partition 1, record 0: the key differs: got {t/1@7 key null value "v" ts 5 "a"="1" "a"=null}, want {t/1@7 key "k" value "v" ts 5 "a"="1" "a"=null}`},
		{[]kafkatest.Record{record(func(r *kafkatest.Record) { r.Value = []byte{} })},
			`partition 1, record 0: the value differs: got {t/1@7 key "k" value "" ts 5 "a"="1" "a"=null}, want {t/1@7 key "k" value "v" ts 5 "a"="1" "a"=null}`},
		{[]kafkatest.Record{record(func(r *kafkatest.Record) { r.Timestamp = 6 })},
			`partition 1, record 0: the timestamp differs: got {t/1@7 key "k" value "v" ts 6 "a"="1" "a"=null}, want {t/1@7 key "k" value "v" ts 5 "a"="1" "a"=null}`},
		{[]kafkatest.Record{record(func(r *kafkatest.Record) { r.Headers[1].Value = []byte{} })},
			`partition 1, record 0: the headers differ: got {t/1@7 key "k" value "v" ts 5 "a"="1" "a"=""}, want {t/1@7 key "k" value "v" ts 5 "a"="1" "a"=null}`},
	} {
		if got := kafkatest.Diff([]kafkatest.Record{same}, c.got); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
