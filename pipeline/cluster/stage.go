package cluster

import (
	"context"
	"runtime/pprof"
)

// Stage is the part of the work that a goroutine does, as profiles show it: label "stage".
type Stage struct{ labels context.Context }

// The stages. Control is all that is neither on the way of a batch nor the state store: metadata, topics, questions, the admin port.
var (
	StageSource  = stage("source")
	StageLane    = stage("lane")
	StageRecode  = stage("recode")
	StageSink    = stage("sink")
	StageState   = stage("state")
	StageControl = stage("control")
)

func stage(name string) Stage {
	return Stage{pprof.WithLabels(context.Background(), pprof.Labels("stage", name))}
}

// Enter labels the calling goroutine, until it enters another stage, and all that it starts meanwhile: those that franz-go starts
// for its calls too. It costs a store, and allocates nothing.
func (s Stage) Enter() { pprof.SetGoroutineLabels(s.labels) }
