package pipeline

import (
	"context"
	"fmt"

	"kferry/batch"
	"kferry/pipeline/lane"
)

// recoder re-encodes for all lanes.
type recoder struct{}

func (recoder) Recode(_ context.Context, _ batch.Batch, plan lane.Plan) ([]lane.Part, error) {
	return nil, fmt.Errorf("%w: this version cannot re-encode (%s)", lane.ErrUndecoded, plan.Reason)
}
