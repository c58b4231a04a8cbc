package cluster

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// A broker of Kafka 2.7 has no DescribeProducers. Both ways to it say so, and the connection lives on.
func TestUnsupportedAPI(t *testing.T) {
	f := fake(t, kfake.MaxVersions(kversion.V2_7_0()))
	c := open(t, Config{Bootstrap: f.ListenAddrs()})
	ctx := within(t)
	conn, err := c.Dial(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if v, ok := conn.Version(keyFetch); !ok || v != 12 {
		t.Fatalf("Fetch version %d, %v; 2.7 has 12", v, ok)
	}
	if _, err := conn.RoundTrip(ctx, kmsg.NewPtrDescribeProducersRequest()); !errors.Is(err, ErrUnsupported) || !Unsupported(err) {
		t.Fatalf("got %v", err)
	}
	if _, err := conn.RoundTrip(ctx, kmsg.NewPtrListGroupsRequest()); err != nil {
		t.Fatalf("the connection did not survive: %v", err)
	}
	_, err = kmsg.NewPtrDescribeProducersRequest().RequestWith(ctx, c.Client().Broker(int(conn.Broker())))
	if !Unsupported(err) {
		t.Fatalf("franz-go says %v", err)
	}
}

// A broker that is too old for record batches of format 2 is refused with a reason at the dial.
func TestTooOldBroker(t *testing.T) {
	f := fake(t)
	c := open(t, Config{Bootstrap: f.ListenAddrs()})
	f.ControlKey(keyAPIVersions, func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{
			{ApiKey: keyProduce, MaxVersion: 2}, {ApiKey: keyFetch, MaxVersion: 11}, {ApiKey: keyAPIVersions, MaxVersion: 3}, {ApiKey: 3, MaxVersion: 5},
		}
		return resp, nil, true
	})
	err := c.Reach(within(t))
	if !errors.Is(err, ErrUnsupported) || !Fatal(err) {
		t.Fatalf("got %v", err)
	}
	const want = "Produce 0 to 2 is offered, 3 to 13 is needed (Kafka 0.11 or newer)"
	if !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %q in it", err, want)
	}
}
