package cluster

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Class says what a lane that produces or fetches does about an error code.
type Class uint8

const (
	OK      Class = iota // no error
	Retry                // nothing was appended: ask again after a pause
	Refresh              // nothing was appended: get fresh metadata, then ask again
	Doubt                // it may have been appended: look before anything else
	Park                 // this lane cannot go on; others can. Tried again now and then
	Stop                 // only the configuration or the cluster's permissions can mend it
)

func (c Class) String() string {
	switch c {
	case OK:
		return "ok"
	case Retry:
		return "retry"
	case Refresh:
		return "refresh"
	case Doubt:
		return "doubt"
	case Park:
		return "park"
	case Stop:
		return "stop"
	}
	return fmt.Sprintf("class(%d)", uint8(c))
}

// Classify returns the class of a broker's error code. A code that is younger than the table may mean anything, so it is Doubt.
func Classify(code int16) Class {
	if class, ok := classes[code]; ok {
		return class
	}
	return Doubt
}

// CodeName is the code's name in Kafka's protocol, as in NOT_ENOUGH_REPLICAS; NONE for 0.
func CodeName(code int16) string {
	switch err := kerr.TypedErrorForCode(code); {
	case err == nil:
		return "NONE"
	case err.Code != code:
		return fmt.Sprintf("unknown error code %d", code)
	default:
		return err.Message
	}
}
