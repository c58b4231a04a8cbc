package kafkatest

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// hangs is the transactions' timeout: longer than a test, and no longer than brokers allow.
const hangs = 15 * time.Minute

// Transactions makes a log of committed and aborted transactions of two producers, with plain records between them. It ends
// in aborted records and their marker.
func Transactions(ctx context.Context, k *Kafka, topic string) error {
	l := newOddLog(ctx, k, topic, nil)
	a, b := topic+"-a", topic+"-b"
	l.append("", values(2))
	l.begin(a, 2)
	l.begin(b, 3)
	l.append("", values(1))
	l.append(a, values(1))
	l.end(b, kgo.TryAbort)
	l.end(a, kgo.TryCommit)
	l.append("", values(2))
	l.begin(b, 4)
	l.end(b, kgo.TryCommit)
	l.begin(a, 5)
	l.end(a, kgo.TryAbort)
	l.until("the last marker", func(heads []Head) bool { return markers(heads) == 4 })
	return l.close()
}

// HangingTransaction makes a log with a transaction that stays open until the caller ends it, which it has to do: two plain
// records, two of the transaction, two plain ones, and a committed transaction of another producer.
func HangingTransaction(ctx context.Context, k *Kafka, topic string) (end func(context.Context, kgo.TransactionEndTry) error, err error) {
	l := newOddLog(ctx, k, topic, nil)
	open, other := topic+"-open", topic+"-other"
	l.append("", values(2))
	l.begin(open, 2)
	l.append("", values(2))
	l.begin(other, 2)
	l.end(other, kgo.TryCommit)
	l.until("the marker behind the open transaction", func(heads []Head) bool { return markers(heads) == 1 })
	if l.err != nil {
		return nil, l.close()
	}
	return func(ctx context.Context, how kgo.TransactionEndTry) error {
		l.ctx = ctx
		l.end(open, how)
		l.until("the open transaction's marker", func(heads []Head) bool { return markers(heads) == 2 })
		return l.close()
	}, nil
}

// begin starts a transaction and appends its first batch.
func (l *oddLog) begin(id string, count int) {
	l.do("begin a transaction in", func() error {
		p, err := l.producer(id, kgo.TransactionalID(id), kgo.TransactionTimeout(hangs))
		if err != nil {
			return err
		}
		return p.BeginTransaction()
	})
	l.append(id, values(count))
}

// end ends a transaction; the marker follows a moment later.
func (l *oddLog) end(id string, how kgo.TransactionEndTry) {
	l.do("end a transaction in", func() error { return l.producers[id].EndTransaction(l.ctx, how) })
}

func markers(heads []Head) (n int) {
	for _, h := range heads {
		if h.Attributes&Control != 0 {
			n++
		}
	}
	return n
}
