package e2e

import (
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"kferry/pipeline"
	"kferry/pipeline/cluster"
	"kferry/pipeline/kafkatest"
	"kferry/pipeline/state"
)

const lanes = 4 // partitions of the topics here

// TestTerm stops the program with SIGTERM at random moments under load and starts it again: nothing twice, nothing
// missing, in order, and the target's batches go on under the same producer id and epoch.
func TestTerm(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "term", lanes)
	file := yaml("term", from.Bootstrap(), to.Bootstrap(), "term")
	load := startNumbers(t, from, "term", lanes)
	admin := adminOf(t, to)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 5 {
		p := launch(t, file, "run")
		waitWritten(t, admin, "termsrc.term", written(t, admin, "termsrc.term")+1+random.Int64N(2000))
		p.terminate()
		p.ends(0)
	}
	end := load.finish()

	p := launch(t, file, "run", "--until-caught-up", "--json")
	p.ends(0)
	var sum struct {
		CaughtUp bool   `json:"caught_up"`
		Error    string `json:"error"`
		Links    []struct {
			Name       string         `json:"name"`
			Records    int64          `json:"records"`
			Partitions int            `json:"partitions"`
			LagRecords int64          `json:"lag_records"`
			Lanes      map[string]int `json:"lanes"`
		} `json:"links"`
	}
	if err := json.Unmarshal(p.output(), &sum); err != nil {
		t.Fatalf("the summary %q: %v", p.output(), err)
	}
	if !sum.CaughtUp || sum.Error != "" || len(sum.Links) != 1 || sum.Links[0].Name != "termsrc.termdst" ||
		sum.Links[0].Partitions != lanes || sum.Links[0].LagRecords != 0 || sum.Links[0].Lanes["stopped"] != lanes {
		t.Fatalf("the summary is %s", p.output())
	}

	exactly(t, to, "termsrc.term", lanes, 0, end)
	for partition := range int32(lanes) {
		if _, epoch := sequences(t, to, "termsrc.term", partition); epoch != 0 {
			t.Fatalf("partition %d ends in epoch %d, want 0: a clean stop raises none", partition, epoch)
		}
	}
	sameBytes(t, from, "term", to, "termsrc.term", lanes)
	launch(t, file, "verify").ends(0)
}

// TestKill kills the program under load: nothing is lost, and what comes twice is exactly what had been written behind
// the stored checkpoint. Each start after a kill is one epoch higher.
func TestKill(t *testing.T) {
	const kills = 3
	from, to := east(t), west(t)
	create(t, from, "kill", lanes)
	file := yaml("kill", from.Bootstrap(), to.Bootstrap(), "kill")
	load := startNumbers(t, from, "kill", lanes)
	admin := adminOf(t, to)
	var resumes [lanes][]state.Checkpoint // by partition, one for each epoch from 1 on
	for range kills {
		p := launch(t, file, "run")
		// Not before a position of this run is stored, and records behind it are written.
		waitWritten(t, admin, "killsrc.kill", written(t, admin, "killsrc.kill")+1)
		before := checkpoints(t, from, to, "killsrc.killdst")
		waitFor(t, "a stored position", func() bool {
			moved := 0
			for key, cp := range checkpoints(t, from, to, "killsrc.killdst") {
				if cp.SrcNext > before[key].SrcNext {
					moved++
				}
			}
			return moved == lanes
		})
		waitWritten(t, admin, "killsrc.kill", written(t, admin, "killsrc.kill")+lanes*20)
		p.Kill9()
		for key, cp := range checkpoints(t, from, to, "killsrc.killdst") {
			resumes[key.Partition] = append(resumes[key.Partition], cp)
		}
	}
	end := load.finish()
	launch(t, file, "run", "--until-caught-up").ends(0)

	doubled := 0
	for partition, numbers := range counted(t, to, "killsrc.kill") {
		// Where each epoch begins in the target's log, and in the numbers, which are the source's offsets.
		epoch, next := int16(0), 0
		for _, b := range heads(t, to, "killsrc.kill", partition) {
			if b.Epoch != epoch {
				if epoch++; b.Epoch != epoch || b.Sequence != 0 {
					t.Fatalf("partition %d at %d: epoch %d, sequence %d; want %d, 0", partition, b.Offset, b.Epoch, b.Sequence, epoch)
				}
				stored := resumes[partition][epoch-1]
				if int(stored.SrcNext) > next || stored.Epoch != epoch-1 {
					t.Fatalf("partition %d: stored %d in epoch %d after %d records in epoch %d", partition, stored.SrcNext, stored.Epoch, next, epoch-1)
				}
				doubled += next - int(stored.SrcNext)
				next = int(stored.SrcNext)
			}
			for i := range b.Count {
				if got := numbers[int(b.Offset)+int(i)]; got != next {
					t.Fatalf("partition %d at %d, epoch %d: number %d, want %d", partition, int(b.Offset)+int(i), epoch, got, next)
				}
				next++
			}
		}
		if next != end || epoch != kills {
			t.Fatalf("partition %d ends with number %d in epoch %d, want %d in %d", partition, next, epoch, end, kills)
		}
	}
	t.Logf("%d of %d records came twice", doubled, lanes*end)
}

// checkpoints are the stored positions of a link's lanes.
func checkpoints(t *testing.T, from, to *kafkatest.Kafka, link string) map[state.LaneKey]state.Checkpoint {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	c, err := cluster.Open(cluster.Config{Alias: "reader", Bootstrap: to.Bootstrap()}, log)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	store, err := state.Open(t.Context(), state.Options{NewClient: c.NewClient, Alias: "reader", ClusterID: from.ClusterID(), ReadOnly: true, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	all := make(map[state.LaneKey]state.Checkpoint)
	for key, cp := range store.Checkpoints() {
		if key.Link == link {
			all[key] = cp
		}
	}
	return all
}

// TestSecondTerm lets a drain hang and sends a second SIGTERM: the end comes at once, with 1, and the next start loses nothing.
func TestSecondTerm(t *testing.T) {
	from, to := east(t), west(t)
	create(t, from, "twice", 1)
	file := yaml("twice", from.Bootstrap(), to.BootstrapOn(kafkatest.Proxied), "twice")
	load := startNumbers(t, from, "twice", 1)
	admin := adminOf(t, to)
	p := launch(t, file, "run")
	waitWritten(t, admin, "twicesrc.twice", 100)
	to.Proxy.Answers.Stall()
	t.Cleanup(to.Proxy.Resume)
	stand := settled(t, admin, "twicesrc.twice") // what is in flight now is not answered
	p.terminate()
	p.waitSaid("stopping")
	p.terminate()
	begun := time.Now()
	p.ends(1)
	if took := time.Since(begun); took > 15*time.Second { // a drain would have taken its 30 s
		t.Fatalf("the second SIGTERM took %v", took)
	}
	to.Proxy.Resume()
	end := load.finish()
	launch(t, file, "run", "--until-caught-up").ends(0)
	numbers := counted(t, to, "twicesrc.twice")[0]
	seen := 0
	for _, n := range numbers {
		if n > seen {
			t.Fatalf("number %d comes after %d", n, seen-1)
		}
		seen = max(seen, n+1)
	}
	if seen != end {
		t.Fatalf("%d numbers arrived, want %d; the target stood at %d when it was cut off", seen, end, stand)
	}
}

// TestGrace stops while the target does not answer: it takes no longer than the grace, and the next start loses nothing.
func TestGrace(t *testing.T) {
	const grace = 2 * time.Second
	from, to := east(t), west(t)
	create(t, from, "grace", 1)
	cfg := config(from, to, "grace", "grace")
	proxied(&cfg, from, to)
	load := startNumbers(t, from, "grace", 1)
	admin := adminOf(t, to)
	p := newPipeline(t, cfg, pipeline.Options{Grace: grace})
	ended := make(chan error, 1)
	go func() { ended <- p.Run(t.Context()) }()
	waitWritten(t, admin, "gracesrc.grace", 100)
	to.Proxy.Answers.Stall()
	t.Cleanup(to.Proxy.Resume)
	settled(t, admin, "gracesrc.grace")
	begun := time.Now()
	p.Stop()
	err := <-ended
	p.Close()
	// The grace once for the lanes and once for their positions, which do not arrive either.
	if took := time.Since(begun); err != nil || took < grace || took > 2*grace+8*time.Second {
		t.Errorf("the stop took %v and ended with %v", took, err)
	}
	to.Proxy.Resume()
	end := load.finish()
	caughtUp(t, cfg)
	seen := 0
	for _, n := range counted(t, to, "gracesrc.grace")[0] {
		if n > seen {
			t.Fatalf("number %d comes after %d", n, seen-1)
		}
		seen = max(seen, n+1)
	}
	if seen != end {
		t.Fatalf("%d numbers arrived, want %d", seen, end)
	}
}

// TestForgottenProducer goes on where the target has forgotten us: all records of ours are deleted there, while the link runs
// and while it does not.
func TestForgottenProducer(t *testing.T) {
	from, to := east(t), west(t)
	n := newTopic(t, from, "forgotten")
	admin := adminOf(t, to)
	forget := func() {
		end := make(kadm.Offsets)
		end.AddOffset("forgottensrc.forgotten", 0, ends(t, to, "forgottensrc.forgotten")[0], -1)
		if _, err := admin.DeleteRecords(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	cfg := config(from, to, "forgotten", "forgotten")
	l := start(t, cfg)
	n.write(10)
	waitWritten(t, admin, "forgottensrc.forgotten", 10)
	forget()
	n.write(10)
	waitWritten(t, admin, "forgottensrc.forgotten", 20)
	l.stop()
	forget()
	n.write(10)
	caughtUp(t, cfg)
	exactly(t, to, "forgottensrc.forgotten", 1, 20, 30)
}

// settled waits until a topic grows no more and returns its length.
func settled(t *testing.T, admin *kadm.Client, topic string) int64 {
	t.Helper()
	last, since := written(t, admin, topic), time.Now()
	waitFor(t, topic+" to stand still", func() bool {
		if now := written(t, admin, topic); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	})
	return last
}
