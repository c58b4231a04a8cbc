package cluster

import (
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A peer that has announced a mute does not read: a write gets that much more time, under way or not, and no more.
func TestThrottledWrite(t *testing.T) {
	const mute = time.Minute
	for _, test := range []struct {
		name     string
		underWay bool
		reads    time.Duration // after the mute began
		want     error
	}{
		{"before", false, mute, nil},
		{"under way", true, mute, nil},
		{"before, and it never reads", false, 2 * mute, ErrTimeout},
		{"under way, and it never reads", true, 2 * mute, ErrTimeout},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, theirs := wire(t, ConnOptions{RequestTimeout: time.Second})
				if !test.underWay {
					c.Throttled(mute)
				}
				background(t, func() {
					<-time.After(test.reads)
					readFrame(theirs)
				})
				written := make(chan error, 1)
				background(t, func() {
					_, err := c.Write(keyProduce, 8, net.Buffers{make([]byte, 100)})
					written <- err
				})
				synctest.Wait()
				if test.underWay {
					c.Throttled(mute)
				}
				if err := <-written; !errors.Is(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		})
	}
}
