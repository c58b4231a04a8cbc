package kafkatest

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// DefaultVersion is the Apache Kafka that a test gets which names none, MM2Version the newest published MirrorMaker 2.
const (
	DefaultVersion = "4.4.0"
	MM2Version     = "4.3.1"
)

const (
	minJava = 17
	// Kafka 4 logs through slf4j 1.7 and brings no binding; without one a broker runs silently.
	log4jBinding = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.5"
	// Kafka 2 brings none either, and is written against log4j 1 itself; 3.x comes with this one.
	reload4jBinding = "org.slf4j:slf4j-reload4j:1.7.36"
)

// Jars is one class path: the artifacts and all they pull in, in a folder of their own in the user's cache.
type Jars struct {
	name      string   // of the folder: <set>-<version>
	artifacts []string // group:artifact:version
}

// BrokerJars are a broker, its tools and the Java clients of one version.
func BrokerJars(version string) Jars {
	artifacts := []string{"org.apache.kafka:kafka_2.13:" + version}
	if !strings.HasPrefix(version, "2.") { // until 3.0 the tools were part of the core
		artifacts = append(artifacts, "org.apache.kafka:kafka-tools:"+version)
	}
	return newJars("broker", version, artifacts)
}

// MM2Jars are MirrorMaker 2 and the Connect runtime of one version.
func MM2Jars(version string) Jars {
	return newJars("mm2", version, []string{
		"org.apache.kafka:connect-mirror:" + version,
		"org.apache.kafka:connect-runtime:" + version,
	})
}

func newJars(set, version string, artifacts []string) Jars {
	switch {
	case usesLog4j2(version):
		artifacts = append(artifacts, log4jBinding)
	case usesZooKeeper(version):
		artifacts = append(artifacts, reload4jBinding)
	}
	return Jars{name: set + "-" + version, artifacts: artifacts}
}

// usesLog4j2 tells which of the two logging libraries a Kafka version runs on: log4j 1 (reload4j) came with 3.x.
func usesLog4j2(version string) bool { return version[0] >= '4' }

// ClassPath returns the argument of java -cp, after fetching with Maven what the cache lacks.
func (j Jars) ClassPath(ctx context.Context) (string, error) {
	dir, err := cached(j.name, func(dir string) error { return j.fetch(ctx, dir) })
	if err != nil {
		return "", fmt.Errorf("fetch the jars %s: %w", j.name, err)
	}
	return filepath.Join(dir, "*"), nil
}

func (j Jars) fetch(ctx context.Context, dir string) error {
	pom, err := j.pom()
	if err != nil {
		return err
	}
	file, err := os.CreateTemp("", "kferry-*.pom")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(pom)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", file.Name(), "dependency:copy-dependencies", "-DoutputDirectory="+dir)
	if out, err := mvn.CombinedOutput(); err != nil {
		return fmt.Errorf("mvn: %w\n%s", err, out)
	}
	return nil
}

func (j Jars) pom() ([]byte, error) {
	type dependency struct {
		Group    string `xml:"groupId"`
		Artifact string `xml:"artifactId"`
		Version  string `xml:"version"`
	}
	pom := struct {
		XMLName      xml.Name     `xml:"http://maven.apache.org/POM/4.0.0 project"`
		Model        string       `xml:"modelVersion"`
		Group        string       `xml:"groupId"`
		Artifact     string       `xml:"artifactId"`
		Version      string       `xml:"version"`
		Packaging    string       `xml:"packaging"`
		Dependencies []dependency `xml:"dependencies>dependency"`
	}{Model: "4.0.0", Group: "kferry.test", Artifact: "jars", Version: "1", Packaging: "pom"}
	for _, a := range j.artifacts {
		group, rest, _ := strings.Cut(a, ":")
		artifact, version, ok := strings.Cut(rest, ":")
		if !ok {
			return nil, fmt.Errorf("artifact %q: want group:artifact:version", a)
		}
		pom.Dependencies = append(pom.Dependencies, dependency{group, artifact, version})
	}
	return xml.MarshalIndent(pom, "", "  ")
}

// Available tells whether real brokers can run here, and if not, what is missing.
func Available() (ok bool, why string) {
	if err := findTools(); err != nil {
		return false, err.Error()
	}
	return true, ""
}

var javaVersion = regexp.MustCompile(`version "(\d+)`)

func findTools() error {
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%s is not on the PATH", tool)
		}
	}
	out, err := exec.Command("java", "-version").CombinedOutput()
	if err != nil {
		return fmt.Errorf("java -version: %w", err)
	}
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("java -version gives no version: %.100q", out)
	}
	if v, _ := strconv.Atoi(string(m[1])); v < minJava {
		return fmt.Errorf("java is version %d, Kafka needs %d or later", v, minJava)
	}
	return nil
}
