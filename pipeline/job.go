package pipeline

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kferry/pipeline/cluster"
	"kferry/pipeline/lane"
)

// job is the end that a link runs to with UntilCaughtUp: the ends of its partitions' logs, asked once.
type job struct {
	link  *Link
	ends  map[*running]int64
	stuck []string
}

// Stuck is the error of a job that ended with lanes, or topics, that cannot go on.
type Stuck struct{ Lanes []string }

func (s *Stuck) Error() string {
	return fmt.Sprintf("%d could not be copied to the end:\n  %s", len(s.Lanes), strings.Join(s.Lanes, "\n  "))
}

func (s *Stuck) join(o *Stuck) *Stuck {
	if s == nil {
		return o
	}
	return &Stuck{slices.Concat(s.Lanes, o.Lanes)}
}

func newJob(l *Link) *job { return &job{link: l} }

// done says whether every lane has reached its end and stored it, or is parked.
func (j *job) done(ctx context.Context) bool {
	if j.ends == nil && !j.ask(ctx) {
		return false
	}
	var stuck []string
	for r, end := range j.ends {
		st := r.lane.Status()
		switch {
		case st.Src >= end && !disowned(st):
		case st.State == lane.Parked:
			stuck = append(stuck, fmt.Sprintf("%s %s: %s (%s); %s", j.link.cfg.Name, r.original(), st.Reason, st.Detail, st.Reason.Info().Cure))
		default:
			return false
		}
	}
	j.link.mu.Lock()
	for topic, why := range j.link.problems {
		stuck = append(stuck, fmt.Sprintf("%s %s: %s", j.link.cfg.Name, topic, why))
	}
	j.link.mu.Unlock()
	slices.Sort(stuck)
	j.stuck = stuck
	return true
}

// disowned says whether a lane is parked because its position speaks of logs that are no longer there: it is nowhere near an
// end then, whatever its number.
func disowned(st lane.Status) bool {
	return st.State == lane.Parked &&
		(st.Reason == lane.TargetLostReason || st.Reason == lane.RecreatedReason || st.Reason == lane.TruncatedReason)
}

// ask finds the ends of all lanes of the first round; partitions that are found later are not waited for.
func (j *job) ask(ctx context.Context) bool {
	ctx, cancel := j.link.whileWanted(ctx, 30*time.Second)
	defer cancel()
	lanes := j.link.running()
	places := make([]cluster.Place, len(lanes))
	for i, r := range lanes {
		places[i] = r.original()
	}
	offsets := j.link.from.Offsets(ctx, places, cluster.Latest, j.link.cfg.Isolation == ReadCommitted)
	ends := make(map[*running]int64, len(lanes))
	for _, r := range lanes {
		o := offsets[r.original()]
		if o.Err != nil && r.lane.Status().State != lane.Parked {
			j.link.log.Warn("cannot ask for the ends, trying again", "err", o.Err)
			return false
		}
		ends[r] = o.Offset
		if o.Err != nil {
			ends[r] = math.MaxInt64 // parked: it is reported as such
		}
	}
	j.ends = ends
	return true
}

// verdict is the job's result after the link has handed over: nil, or what is stuck. A nil job has none.
func (j *job) verdict() error {
	if j == nil || len(j.stuck) == 0 {
		return nil
	}
	return &Stuck{j.stuck}
}
