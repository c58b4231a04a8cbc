package cluster

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests counts what is sent to a cluster by API key, over all connections: Conns and franz-go's clients. Keys that franz-go does
// not know are not counted. What a Conn could not write may be counted.
type requests [kmsg.MaxKey + 1]atomic.Int64

var _ kgo.HookBrokerWrite = (*requests)(nil)

func (r *requests) count(key int16) {
	if key >= 0 && int(key) < len(r) {
		r[key].Add(1)
	}
}

// OnBrokerWrite counts for franz-go's clients.
func (r *requests) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, err error) {
	if err == nil {
		r.count(key)
	}
}

// Requests calls f with the name of each API that was used, and how many requests were sent to the cluster since Open.
func (c *Cluster) Requests(f func(api string, sent int64)) {
	for key := range c.requests {
		if n := c.requests[key].Load(); n > 0 {
			f(kmsg.NameForKey(int16(key)), n)
		}
	}
}
