package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"kferry/partitioner"
	"kferry/pipeline"
	"kferry/pipeline/cluster"

	"github.com/goccy/go-yaml"
)

// The printed form: the file's keys in the file's order, every default spelled out. Encoders sort the aliases.
type (
	printed struct {
		Clusters map[string]printedCluster `yaml:"clusters" json:"clusters"`
		Links    []printedLink             `yaml:"links" json:"links"`
		Memory   any                       `yaml:"memory" json:"memory"`
		Admin    printedAdmin              `yaml:"admin" json:"admin"`
		Log      printedLog                `yaml:"log" json:"log"`
	}
	printedCluster struct {
		Bootstrap []string     `yaml:"bootstrap" json:"bootstrap"`
		TLS       *printedTLS  `yaml:"tls,omitempty" json:"tls,omitempty"`
		SASL      *printedSASL `yaml:"sasl,omitempty" json:"sasl,omitempty"`
		Rack      string       `yaml:"rack,omitempty" json:"rack,omitempty"`
	}
	printedTLS struct {
		CA                 string `yaml:"ca,omitempty" json:"ca,omitempty"`
		Cert               string `yaml:"cert,omitempty" json:"cert,omitempty"`
		Key                string `yaml:"key,omitempty" json:"key,omitempty"`
		ServerName         string `yaml:"server_name,omitempty" json:"server_name,omitempty"`
		InsecureSkipVerify bool   `yaml:"insecure_skip_verify" json:"insecure_skip_verify"`
	}
	printedSASL struct {
		Mechanism string `yaml:"mechanism" json:"mechanism"`
		Username  string `yaml:"username,omitempty" json:"username,omitempty"`
		// Secrets print themselves as ***.
		Password      *cluster.Secret   `yaml:"password,omitempty" json:"password,omitempty"`
		TokenEndpoint string            `yaml:"token_endpoint,omitempty" json:"token_endpoint,omitempty"`
		ClientID      string            `yaml:"client_id,omitempty" json:"client_id,omitempty"`
		ClientSecret  *cluster.Secret   `yaml:"client_secret,omitempty" json:"client_secret,omitempty"`
		Scope         string            `yaml:"scope,omitempty" json:"scope,omitempty"`
		TokenFile     string            `yaml:"token_file,omitempty" json:"token_file,omitempty"`
		TokenCommand  []string          `yaml:"token_command,omitempty" json:"token_command,omitempty"`
		Extensions    map[string]string `yaml:"extensions,omitempty" json:"extensions,omitempty"`
	}
	printedLink struct {
		Name             string        `yaml:"name" json:"name"`
		From             string        `yaml:"from" json:"from"`
		To               string        `yaml:"to" json:"to"`
		Topics           printedTopics `yaml:"topics" json:"topics"`
		Naming           any           `yaml:"naming" json:"naming"`
		Separator        string        `yaml:"separator" json:"separator"`
		Start            string        `yaml:"start" json:"start"`
		Isolation        string        `yaml:"isolation" json:"isolation"`
		Refresh          string        `yaml:"refresh" json:"refresh"`
		OntoExisting     bool          `yaml:"onto_existing" json:"onto_existing"`
		AllowSameCluster bool          `yaml:"allow_same_cluster" json:"allow_same_cluster"`
	}
	printedTopics struct {
		Include         []string `yaml:"include" json:"include"`
		Exclude         []string `yaml:"exclude" json:"exclude"`
		ExcludeInternal bool     `yaml:"exclude_internal" json:"exclude_internal"`
	}
	printedAdmin struct {
		Listen string `yaml:"listen" json:"listen"`
	}
	printedLog struct {
		Level  string `yaml:"level" json:"level"`
		Format string `yaml:"format" json:"format"`
	}
)

// Print gives the effective configuration as YAML: all defaults, absolute paths, aliases sorted, secrets as ***.
func Print(cfg pipeline.Config) (string, error) {
	out, err := yaml.MarshalWithOptions(form(cfg), yaml.IndentSequence(true))
	if err != nil {
		return "", fmt.Errorf("print the configuration: %w", err)
	}
	return string(out), nil
}

// PrintJSON is Print as one indented JSON object.
func PrintJSON(cfg pipeline.Config) (string, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(form(cfg)); err != nil {
		return "", fmt.Errorf("print the configuration: %w", err)
	}
	return out.String(), nil
}

func form(cfg pipeline.Config) printed {
	p := printed{
		Clusters: map[string]printedCluster{},
		Links:    []printedLink{},
		Memory:   bytesForm(cfg.MemoryBytes),
		Admin:    printedAdmin{Listen: cfg.AdminListen},
		Log:      printedLog(cfg.Log),
	}
	for alias, c := range cfg.Clusters {
		side := printedCluster{Bootstrap: c.Bootstrap, Rack: c.Rack}
		if c.TLS != nil {
			side.TLS = &printedTLS{c.TLS.CA, c.TLS.Cert, c.TLS.Key, c.TLS.ServerName, c.TLS.InsecureSkipVerify}
		}
		if c.SASL != nil {
			side.SASL = saslForm(c.SASL)
		}
		p.Clusters[alias] = side
	}
	for _, l := range cfg.Links {
		p.Links = append(p.Links, printedLink{
			Name: l.Name, From: l.From, To: l.To,
			Topics:    printedTopics{l.Topics.Include, append([]string{}, l.Topics.Exclude...), l.Topics.ExcludeInternal},
			Naming:    namingForm(l.Naming),
			Separator: l.Separator, Start: l.Start.String(), Isolation: string(l.Isolation),
			Refresh: l.Refresh.String(), OntoExisting: l.OntoExisting, AllowSameCluster: l.AllowSameCluster,
		})
	}
	return p
}

func saslForm(s *cluster.SASL) *printedSASL {
	if s.OAuth == nil {
		return &printedSASL{Mechanism: s.Mechanism, Username: s.Username, Password: &s.Password}
	}
	o := s.OAuth
	p := &printedSASL{Mechanism: s.Mechanism, TokenEndpoint: o.TokenEndpoint, ClientID: o.ClientID, Scope: o.Scope,
		TokenFile: o.TokenFile, TokenCommand: o.TokenCommand, Extensions: o.Extensions}
	if o.TokenEndpoint != "" {
		p.ClientSecret = &o.ClientSecret
	}
	return p
}

func namingForm(n partitioner.NamingConfig) any {
	if n.Kind == partitioner.Rename {
		return map[string]map[string]string{"rename": n.Rename}
	}
	return string(n.Kind)
}

// bytesForm writes a size in the largest unit that divides it.
func bytesForm(n int64) any {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if u := int64(units[unit]); n >= u && n%u == 0 {
			return strconv.FormatInt(n/u, 10) + unit
		}
	}
	return n
}
