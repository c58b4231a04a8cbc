package cluster

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The APIs of the data plane, by their keys.
const (
	keyProduce          = 0
	keyFetch            = 1
	keySASLHandshake    = 17
	keyAPIVersions      = 18
	keySASLAuthenticate = 36
)

// The oldest versions we speak: both carry record batches of format 2 (KIP-98, Kafka 0.11).
const (
	minFetch   = 4
	minProduce = 3
)

// versions is what a broker and we agree on, by API key.
type versions [kmsg.MaxKey + 1]versionRange

// versionRange is one API: the versions both sides know, and where the flexible encoding (KIP-482) begins. The zero value is
// made unknown by newVersions: max -1.
type versionRange struct{ min, max, flexible int16 }

func newVersions() *versions {
	v := new(versions)
	for key := range v {
		v[key] = versionRange{max: -1}
	}
	return v
}

// handshakeVersions are those that may be spoken before the broker has told its own.
func handshakeVersions() *versions {
	v := newVersions()
	v[keyAPIVersions] = versionRange{min: 0, max: 3, flexible: 3}
	return v
}

// negotiate takes the newest version that the broker, kmsg and caps (may be nil) know.
func negotiate(offered []kmsg.ApiVersionsResponseApiKey, caps map[int16]int16) (*versions, error) {
	v := newVersions()
	for _, api := range offered {
		req := kmsg.RequestForKey(api.ApiKey)
		if req == nil {
			continue
		}
		r := versionRange{min: max(api.MinVersion, 0), max: min(api.MaxVersion, req.MaxVersion())}
		if top, ok := caps[api.ApiKey]; ok {
			r.max = min(r.max, top)
		}
		switch api.ApiKey {
		case keyFetch:
			r.min = max(r.min, minFetch)
		case keyProduce:
			r.min = max(r.min, minProduce)
		}
		if r.max < r.min {
			if api.ApiKey == keyFetch || api.ApiKey == keyProduce {
				return nil, fmt.Errorf("%w: %s %d to %d is offered, %d to %d is needed (Kafka 0.11 or newer): %w", ErrUnsupported,
					kmsg.NameForKey(api.ApiKey), api.MinVersion, api.MaxVersion, r.min, req.MaxVersion(), kerr.UnsupportedVersion)
			}
			continue
		}
		for r.flexible = r.min; r.flexible <= r.max; r.flexible++ {
			if req.SetVersion(r.flexible); req.IsFlexible() {
				break
			}
		}
		v[api.ApiKey] = r
	}
	for _, key := range []int16{keyFetch, keyProduce} {
		if v[key].max < 0 {
			return nil, fmt.Errorf("%w: %s is not offered: is this a Kafka broker?", ErrUnsupported, kmsg.NameForKey(key))
		}
	}
	return v, nil
}

// flexible reports whether version of key is agreed on, and whether its headers carry tagged fields.
func (v *versions) flexible(key, version int16) (flexible, ok bool) {
	if key < 0 || int(key) >= len(v) {
		return false, false
	}
	r := v[key]
	return version >= r.flexible, version >= r.min && version <= r.max
}
