package batch

import (
	"strings"
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestValidateCronJob(t *testing.T) {
	schedule := func(s string) string { return "{spec: {schedule: '" + s + "'}}" }
	zone := func(s string) string { return "{spec: {timeZone: '" + s + "'}}" }
	resourcetest.Rules(t, cronJobs, input(t, "cronjobs/minimal"), []resourcetest.Rule{
		{Name: "a defaulted cron job is valid"},
		{Name: "a schedule may have ranges, steps and names", Change: schedule("*/15 0-6 1,15 JAN-MAR MON")},
		{Name: "a schedule may be an interval", Change: schedule("@every 1h30m")},
		{Name: "a schedule is required", Change: "{spec: {schedule: null}}", Want: []string{"spec.schedule: Required value"}},
		{Name: "a schedule has five fields", Change: schedule("* * * *"), Want: []string{
			`spec.schedule: Invalid value: "* * * *": expected exactly 5 fields, found 4: [* * * *]`,
		}},
		{Name: "a schedule's fields are in range", Change: schedule("60 * * * *"), Want: []string{
			`spec.schedule: Invalid value: "60 * * * *": end of range (60) above maximum (59): 60`,
		}},
		{Name: "a schedule has no time zone", Change: schedule("TZ=UTC 0 * * * *"), Want: []string{
			`spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`,
		}},
		{Name: "a schedule is more than a time zone", Change: schedule("TZ=0"), Want: []string{
			`spec.schedule: Invalid value: "TZ=0": expected exactly 5 fields, found 0 after the time zone`,
			`spec.schedule: Invalid value: "TZ=0": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`,
		}},
		{Name: "a schedule keeps its time zone", Update: true, Was: schedule("TZ=UTC 0 * * * *"), Change: schedule("CRON_TZ=UTC 1 * * * *")},
		{Name: "a schedule gets no time zone", Update: true, Change: schedule("TZ=UTC 0 * * * *"), Want: []string{
			`spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead`,
		}},
		{Name: "a cron job has one time zone", Update: true, Was: schedule("TZ=UTC 0 * * * *"), Change: "{spec: {schedule: 'TZ=UTC 0 * * * *', timeZone: UTC}}", Want: []string{
			`spec.schedule: Invalid value: "TZ=UTC 0 * * * *": cannot use both timeZone field and TZ or CRON_TZ in schedule`,
		}},
		{Name: "a time zone is one of IANA's", Change: zone("America/Argentina/Buenos_Aires")},
		{Name: "a time zone may have an old name", Change: zone("Etc/GMT+7")},
		{Name: "a time zone is not empty", Change: zone(""), Want: []string{`spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string`}},
		{Name: "a time zone is known", Change: zone("Mars/Base"), Want: []string{`spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base`}},
		{Name: "a time zone is no path", Change: zone("../passwd"), Want: []string{`spec.timeZone: Invalid value: "../passwd": unknown time zone ../passwd`}},
		{Name: "a time zone is not the machine's", Change: zone("Local"), Want: []string{
			`spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones`,
		}},
		{Name: "a time zone that does not change is not validated", Update: true, Was: zone("Mars/Base"), Change: zone("Mars/Base")},
		{Name: "a time zone that changes is", Update: true, Was: zone("Mars/Base"), Change: zone("Mars/Port"), Want: []string{`spec.timeZone: Invalid value: "Mars/Port": unknown time zone Mars/Port`}},
		{Name: "the concurrency policy is known", Change: "{spec: {concurrencyPolicy: Queue}}", Want: []string{
			`spec.concurrencyPolicy: Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"`,
		}},
		{Name: "limits are not negative", Change: "{spec: {startingDeadlineSeconds: -1, successfulJobsHistoryLimit: -2, failedJobsHistoryLimit: -3}}", Want: []string{
			"spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
			"spec.successfulJobsHistoryLimit: Invalid value: -2: must be greater than or equal to 0",
			"spec.failedJobsHistoryLimit: Invalid value: -3: must be greater than or equal to 0",
		}},
		{Name: "the jobs select their own pods", Change: "{spec: {jobTemplate: {spec: {manualSelector: true, selector: {matchLabels: {a: b}}}}}}", Want: []string{
			"spec.jobTemplate.spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"b\"}}: `selector` will be auto-generated",
			`spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"`,
		}},
		{Name: "the jobs are valid", Change: "{spec: {jobTemplate: {spec: {completions: -1, template: {spec: {restartPolicy: Always}}}}}}", Want: []string{
			"spec.jobTemplate.spec.completions: Invalid value: -1: must be greater than or equal to 0",
			`spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"`,
		}},
		{Name: "a name leaves room for that of a job", Change: "{metadata: {name: " + strings.Repeat("a", 53) + "}}", Want: []string{
			`metadata.name: Invalid value: "` + strings.Repeat("a", 53) + `": must be no more than 52 characters`,
		}},
		{Name: "a long name does not stand in the way of updates", Update: true, Change: "{metadata: {name: " + strings.Repeat("a", 53) + "}}"},
	})
}
