package kafkatest

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// writeProperties writes a Java properties file, sorted.
func writeProperties(path string, config map[string]string) error {
	var s strings.Builder
	for _, key := range slices.Sorted(maps.Keys(config)) {
		fmt.Fprintf(&s, "%s=%s\n", key, strings.ReplaceAll(config[key], `\`, `\\`))
	}
	return os.WriteFile(path, []byte(s.String()), 0o600)
}

// Where a JVM's log goes, in log4j's words.
const (
	stdout = "SYSTEM_OUT"
	stderr = "SYSTEM_ERR" // where stdout is the program's answer
)

// logging is the configuration of a JVM's log.
func logging(version, level, to string) string {
	const pattern = "%d{HH:mm:ss.SSS} %p %c{1}: %m%n"
	if usesLog4j2(version) {
		return "appender.out.type=Console\nappender.out.name=out\nappender.out.target=" + to +
			"\nappender.out.layout.type=PatternLayout\nappender.out.layout.pattern=" + pattern +
			"\nrootLogger.level=" + level + "\nrootLogger.appenderRef.out.ref=out\n" +
			"logger.config.name=org.apache.kafka.common.config\nlogger.config.level=WARN\n"
	}
	return "log4j.rootLogger=" + level + ",out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n" +
		"log4j.appender.out.Target=" + map[string]string{stdout: "System.out", stderr: "System.err"}[to] +
		"\nlog4j.appender.out.layout=org.apache.log4j.PatternLayout\nlog4j.appender.out.layout.ConversionPattern=" + pattern +
		"\nlog4j.logger.org.apache.kafka.common.config=WARN\n"
}

func loggingFlag(version, path string) string {
	if usesLog4j2(version) {
		return "-Dlog4j2.configurationFile=" + path
	}
	return "-Dlog4j.configuration=file:" + path
}
