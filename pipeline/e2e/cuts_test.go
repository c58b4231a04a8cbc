package e2e

import (
	"testing"

	"kferry/pipeline"
	"kferry/pipeline/kafkatest"
)

// TestCuts copies under load between brokers whose connections misbehave: the copy is exact, under one producer id and epoch.
func TestCuts(t *testing.T) {
	for _, c := range []struct {
		name     string
		side     func(*testing.T) *kafkatest.Kafka
		disturb  func(*testing.T, *kafkatest.Proxy, int)
		distress int // how often
	}{
		{"target-reset", west, func(_ *testing.T, p *kafkatest.Proxy, _ int) { p.CutAll(kafkatest.RST) }, 12},
		{"target-closed", west, func(_ *testing.T, p *kafkatest.Proxy, _ int) { p.CutAll(kafkatest.FIN) }, 12},
		{"source-reset", east, func(_ *testing.T, p *kafkatest.Proxy, _ int) { p.CutAll(kafkatest.RST) }, 12},
		{"source-closed", east, func(_ *testing.T, p *kafkatest.Proxy, _ int) { p.CutAll(kafkatest.FIN) }, 12},
		// In the middle of a request: the broker has read a part of it. The counts are odd, so that cuts fall anywhere.
		{"target-mid-request", west, func(_ *testing.T, p *kafkatest.Proxy, i int) {
			p.Requests.CutAfter(int64(1_013+i*7_919), kafkatest.FIN)
		}, 8},
		// In the middle of an answer: all was appended, and we do not know it.
		{"target-mid-answer", west, func(_ *testing.T, p *kafkatest.Proxy, i int) { p.Answers.CutAfter(int64(1+i*37), kafkatest.RST) }, 12},
		{"source-mid-answer", east, func(_ *testing.T, p *kafkatest.Proxy, i int) { p.Answers.CutAfter(int64(997+i*6_007), kafkatest.RST) }, 8},
		// Requests arrive and their answers do not.
		{"target-mute", west, func(t *testing.T, p *kafkatest.Proxy, _ int) {
			p.Answers.Blackhole()
			at := p.Requests.Forwarded()
			waitFor(t, "requests", func() bool { return p.Requests.Forwarded() > at+10_000 })
			p.CutAll(kafkatest.RST)
			p.Answers.Resume()
		}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			from, to := east(t), west(t)
			topic := "cuts-" + c.name
			create(t, from, topic, lanes)
			cfg := config(from, to, c.name, topic)
			proxied(&cfg, from, to)
			load := startNumbers(t, from, topic, lanes)
			admin := adminOf(t, to)
			copied := alias(cfg) + "." + topic
			l := start(t, cfg)
			proxy := c.side(t).Proxy
			t.Cleanup(proxy.Resume)
			for i := range c.distress {
				waitWritten(t, admin, copied, written(t, admin, copied)+lanes*20)
				before, open := proxy.Accepted(), proxy.Open()
				c.disturb(t, proxy, i)
				waitFor(t, "a connection to be cut", func() bool { return proxy.Accepted() > before || proxy.Open() < open })
			}
			end := load.finish()
			waitWritten(t, admin, copied, int64(lanes*end))
			l.stop()
			exactly(t, to, copied, lanes, 0, end)
			for p := range int32(lanes) {
				if _, epoch := sequences(t, to, copied, p); epoch != 0 {
					t.Fatalf("partition %d ends in epoch %d: an exact copy needs no other than 0", p, epoch)
				}
			}
			sameBytes(t, from, topic, to, copied, lanes)
		})
	}
}

// proxied leads a configuration's only link through the proxies of its brokers.
func proxied(cfg *pipeline.Config, from, to *kafkatest.Kafka) {
	l := cfg.Links[0]
	for alias, k := range map[string]*kafkatest.Kafka{l.From: from, l.To: to} {
		c := cfg.Clusters[alias]
		c.Bootstrap = k.BootstrapOn(kafkatest.Proxied)
		cfg.Clusters[alias] = c
	}
}

// TestStall stops all bytes between kferry and the target for a while: nothing is lost, and memory stays in its bounds.
func TestStall(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "stall", lanes)
	cfg := config(from, to, "stall", "stall")
	proxied(&cfg, from, to)
	load := startNumbers(t, from, "stall", lanes)
	admin := adminOf(t, to)
	l := start(t, cfg)
	t.Cleanup(to.Proxy.Resume)
	for range 3 {
		waitWritten(t, admin, "stallsrc.stall", written(t, admin, "stallsrc.stall")+lanes*20)
		to.Proxy.Stall()
		stood := settled(t, admin, "stallsrc.stall")
		waitWritten(t, adminOf(t, from), "stall", stood+lanes*100)
		if used, limit := l.Memory(); used > limit {
			t.Fatalf("holds %d bytes, the limit is %d", used, limit)
		}
		to.Proxy.Resume()
	}
	end := load.finish()
	waitWritten(t, admin, "stallsrc.stall", int64(lanes*end))
	l.stop()
	exactly(t, to, "stallsrc.stall", lanes, 0, end)
}

// TestBrokerKilled kills a broker that is the target of one link and the source of the next, and starts it again, while
// records flow through both.
func TestBrokerKilled(t *testing.T) {
	from, to := east(t), west(t)
	middle := kafkatest.StartFor(t, kafkatest.Options{Version: "4.4.0"})
	create(t, from, "killed", lanes)
	cfg := config(from, middle, "a", "killed")
	onward := config(middle, to, "b", "asrc[.]killed")
	for alias, c := range onward.Clusters {
		cfg.Clusters[alias] = c
	}
	cfg.Links = append(cfg.Links, onward.Links...)
	load := startNumbers(t, from, "killed", lanes)
	far := adminOf(t, to)
	l := start(t, cfg)
	const last = "bsrc.asrc.killed"
	waitWritten(t, far, last, 100)
	middle.Broker(1).Kill9()
	if err := middle.Broker(1).Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitWritten(t, far, last, written(t, far, last)+lanes*100)
	end := load.finish()
	waitWritten(t, far, last, int64(lanes*end))
	l.stop()
	exactly(t, middle, "asrc.killed", lanes, 0, end)
	exactly(t, to, last, lanes, 0, end)
	for p := range int32(lanes) {
		sequences(t, middle, "asrc.killed", p)
		sequences(t, to, last, p)
	}
}
