package main

import (
	"testing"

	logsapi "k8s.io/component-base/logs/api/v1"
)

func TestErrorsOfLogsNameTheirFlags(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*logsapi.LoggingConfiguration)
		want   string
	}{
		"format":    {func(c *logsapi.LoggingConfiguration) { c.Format = "bogus" }, `--logging-format: Invalid value: "bogus": Unsupported log format; choose from text, json`},
		"verbosity": {func(c *logsapi.LoggingConfiguration) { c.Verbosity = 1 << 31 }, `--v: Invalid value: 2147483648: Must be <= 2147483647`},
		"vmodule": {func(c *logsapi.LoggingConfiguration) {
			c.Format, c.VModule = "json", logsapi.VModuleConfiguration{{FilePattern: "a", Verbosity: 1}}
		},
			`--vmodule: Forbidden: Only supported for text log format`},
	} {
		c := logsapi.NewLoggingConfiguration()
		test.change(c)
		err := logsapi.Validate(c, nil, nil).ToAggregate()
		if err == nil {
			t.Fatalf("%s: no error", name)
		}
		if got := ofFlags(err).Error(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
