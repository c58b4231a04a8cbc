package bench

import "context"

const tlsRatioMax = 1.2

// TLS measures kferry's CPU per byte with TLS on both legs beside a relay with TLS on both legs.
func TLS(ctx context.Context, h *Host, short bool) ([]Result, error) {
	const name = "tls"
	rounds, volume := 5, int64(6e9)
	if short {
		rounds, volume = 1, 1e9
	}
	security, err := newCertificate(h.Dir)
	if err != nil {
		return nil, err
	}
	large := haul{workload: largeBatches, partitions: forwardPartitions, volume: volume, tls: security}
	costs, err := alternate(ctx, rounds, h.Progress,
		subject{"kferry", func(ctx context.Context) (Cost, error) { return h.forward(ctx, large) }},
		subject{"relay", func(ctx context.Context) (Cost, error) { return h.relay(ctx, relaySmall, large) }})
	if err != nil {
		return nil, err
	}
	relay := told(name, "tls-relay-cpu-per-byte", "ns/B", costs[1], perByte)
	return []Result{
		told(name, "tls-cpu-per-byte", "ns/B", costs[0], perByte).judged(relay, tlsRatioMax),
		relay,
		told(name, "tls-bytes-per-second", "B/s", costs[0], bytesPerSecond),
	}, nil
}
