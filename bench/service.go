package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"kferry/pipeline/kafkatest"
)

const (
	readyWait   = 2 * time.Minute // until every link copies; ten thousand topics' partitions have to be made first
	readyPoll   = 20 * time.Millisecond
	scrapeBytes = 64 << 20 // of a page of metrics
)

// service is a running kferry that is asked over its admin port.
type service struct {
	*kafkatest.Process
	admin string // base URL
}

// serve starts kferry with l and returns when it is ready.
func (h *Host) serve(ctx context.Context, l link) (*service, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.admin = free.Addr().String()
	free.Close()
	name, args, err := l.command(ctx, h)
	if err != nil {
		return nil, err
	}
	process, err := h.run(name, args...)
	if err != nil {
		return nil, err
	}
	s := &service{process, "http://" + l.admin}
	if err := s.ready(ctx); err != nil {
		process.Kill9()
		return nil, err
	}
	return s, nil
}

func (s *service) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		_, err := s.get(ctx, "/readyz")
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-s.Done():
			return fmt.Errorf("kferry ended before it was ready: %w", errors.Join(s.Wait(ctx), errors.New(s.Tail())))
		case <-ctx.Done():
			return fmt.Errorf("wait for kferry: %w\n%s", err, s.Tail())
		}
	}
}

func (s *service) get(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.admin+path, nil)
	if err != nil {
		return "", err
	}
	req.Close = true // a connection that stays would be part of what is measured
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, scrapeBytes))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("get %s: %s: %s", path, resp.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// metrics scrapes once. What has labels is summed under its name.
func (s *service) metrics(ctx context.Context) (map[string]float64, error) {
	page, err := s.get(ctx, "/metrics")
	if err != nil {
		return nil, fmt.Errorf("scrape kferry: %w", err)
	}
	return parseMetrics(page)
}

func parseMetrics(page string) (map[string]float64, error) {
	sums := make(map[string]float64)
	lines := bufio.NewScanner(strings.NewReader(page))
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		at := strings.LastIndexByte(line, ' ')
		if at < 0 {
			return nil, fmt.Errorf("metric %q: no value", line)
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		name, _, _ := strings.Cut(line[:at], "{")
		sums[name] += value
	}
	return sums, lines.Err()
}

// copies waits until so many lanes run.
func (s *service) copies(ctx context.Context, lanes int32) error {
	ctx, cancel := context.WithTimeout(ctx, readyWait)
	defer cancel()
	for {
		page, err := s.get(ctx, "/metrics")
		if err != nil {
			return fmt.Errorf("scrape kferry: %w\n%s", err, s.Tail())
		}
		running := 0.0
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, "kferry_lanes{") && strings.Contains(line, `state="running"`) {
				sums, err := parseMetrics(line)
				if err != nil {
					return err
				}
				running += sums["kferry_lanes"]
			}
		}
		if running == float64(lanes) {
			return nil
		}
		if err := pause(ctx, 10*readyPoll); err != nil {
			return fmt.Errorf("%v of %d lanes run: %w\n%s", running, lanes, err, s.Tail())
		}
	}
}
