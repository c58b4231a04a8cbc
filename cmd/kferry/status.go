package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"kferry/pipeline"
)

const (
	statusWait  = 10 * time.Second
	statusBytes = 256 << 20 // largest answer read: 100,000 partitions have some 60 MB
)

func statusCommand() *cobra.Command {
	var file, addr string
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "status [-c FILE | --admin HOST:PORT]",
		Short: "Asks a running kferry how it is doing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file != "" && addr == "" {
				cfg, err := load(file)
				if err != nil {
					return err
				}
				if addr = cfg.AdminListen; addr == "" {
					return exit(exitRefused, errors.New("admin.listen is empty in this configuration, so there is nothing to ask"))
				}
			}
			if addr == "" {
				addr = pipeline.DefaultConfig().AdminListen
			}
			body, err := askStatus(cmd.Context(), addr)
			if err != nil {
				return err
			}
			if asJSON {
				_, err := cmd.OutOrStdout().Write(body)
				return err
			}
			var s pipeline.Status
			if err := json.Unmarshal(body, &s); err != nil {
				return fmt.Errorf("read the status of %s: %w", addr, err)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), showStatus(s, all, time.Now()))
			return err
		},
	}
	configFlag(cmd, &file)
	cmd.Flags().StringVar(&addr, "admin", "", "`HOST:PORT` to ask; default admin.listen of the configuration, else "+pipeline.DefaultConfig().AdminListen)
	cmd.Flags().BoolVar(&all, "all", false, "list the partitions that are well too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// askStatus gets the JSON of a running process. A listen address without a host is this machine.
func askStatus(ctx context.Context, addr string) ([]byte, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, exit(exitRefused, fmt.Errorf("%q is not HOST:PORT", addr))
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	addr = net.JoinHostPort(host, port)
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/api/v1/status", nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	// A transport of its own: nothing stays open, and no proxy is asked for an address like this.
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w: is kferry running there, and is admin.listen this address?", addr, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask %s: it answers %s: is this kferry's admin.listen?", addr, resp.Status)
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, statusBytes+1))
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", addr, err)
	}
	if len(body) > statusBytes {
		return nil, fmt.Errorf("ask %s: the answer has more than %d bytes", addr, statusBytes)
	}
	return body, nil
}

// showStatus writes a status for people: each link, what is wrong in it, and with all, every partition.
func showStatus(s pipeline.Status, all bool, now time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, "up %v, holds %s of %s\n", now.Sub(s.Started).Round(time.Second), showBytes(float64(s.MemoryBytes)), showBytes(float64(s.MemoryLimit)))
	for _, l := range s.Links {
		fmt.Fprintf(&b, "\nlink %s: %s -> %s, %s\n", l.Name, l.From, l.To, l.Phase)
		var lanes []string
		for _, state := range slices.Sorted(maps.Keys(l.Lanes)) {
			lanes = append(lanes, fmt.Sprintf("%d %s", l.Lanes[state], state))
		}
		if len(lanes) == 0 {
			lanes = []string{"none"}
		}
		fmt.Fprintf(&b, "  partitions: %s\n", strings.Join(lanes, ", "))
		fmt.Fprintf(&b, "  behind: %d records, %.1f s\n", l.LagRecords, l.LagSeconds)
		fmt.Fprintf(&b, "  copied: %d records, %s\n", l.Records, showBytes(float64(l.Bytes)))
		for _, topic := range slices.Sorted(maps.Keys(l.Problems)) {
			fmt.Fprintf(&b, "  ! %s: %s\n", topic, l.Problems[topic])
		}
		for _, p := range l.Partitions {
			wrong := p.Reason != ""
			if !wrong && !all {
				continue
			}
			fmt.Fprintf(&b, "  %s/%d -> %s: %s at %d of %d\n", p.Topic, p.Partition, p.Target, p.State, p.SrcOffset, p.SrcEnd)
			for _, line := range []string{p.Reason, p.Detail, p.Cure} {
				if line != "" {
					fmt.Fprintf(&b, "    %s\n", line)
				}
			}
		}
	}
	return b.String()
}
