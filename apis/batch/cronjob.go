package batch

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	_ "time/tzdata"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	batchv1beta1 "k8s.io/api/batch/v1beta1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"svc.dev/svc/apis/podspec"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/apis/workload"
)

var cronJobs = resource.Type[*batchv1.CronJob]{
	Name: "cronjobs", ShortNames: []string{"cj"}, Categories: []string{"all"}, Namespaced: true,
	Versions: []resource.Version{
		resource.Alike[batchv1.CronJob, batchv1beta1.CronJob](),
		resource.Also[batchv1beta1.CronJob](schema.GroupVersion{Group: batchv1.GroupName, Version: "v2alpha1"}),
	},
	NameRule: cronJobName,
	Default:  defaultCronJob,
	Validate: validateCronJob,
	Restrict: func(env *resource.Env, c *batchv1.CronJob) field.ErrorList {
		return podspec.Restrict(env, &c.Spec.JobTemplate.Spec.Template.Spec, field.NewPath("spec", "jobTemplate", "spec", "template", "spec"))
	},
	ValidateCreate: func(c *batchv1.CronJob) field.ErrorList {
		return append(validateZoneOfSchedule(c, false), validateTimeZone(c.Spec.TimeZone)...)
	},
	ValidateUpdate: func(c, old *batchv1.CronJob) field.ErrorList {
		errs := validateZoneOfSchedule(c, HasZone(old))
		// A time zone that no longer exists must not prevent other changes.
		if !ptr.Equal(c.Spec.TimeZone, old.Spec.TimeZone) {
			errs = append(errs, validateTimeZone(c.Spec.TimeZone)...)
		}
		return errs
	},
	Warn: func(c, old *batchv1.CronJob) []string {
		path := field.NewPath("spec", "jobTemplate", "spec")
		if old == nil {
			return append(workload.NameWarnings(c.Name), warnJobSpec(&c.Spec.JobTemplate.Spec, path)...)
		}
		var warnings []string
		if c.Generation != old.Generation {
			warnings = warnJobSpec(&c.Spec.JobTemplate.Spec, path)
		}
		if HasZone(c) {
			warnings = append(warnings, ZoneWarning)
		}
		return warnings
	},
	Generation: true,
	Status:     true,
	Columns: slices.Concat([]resource.Column[*batchv1.CronJob]{
		resource.Name[*batchv1.CronJob](),
		{Name: "Schedule", Description: batchv1.CronJobSpec{}.SwaggerDoc()["schedule"],
			Value: func(c *batchv1.CronJob) any { return c.Spec.Schedule }},
		{Name: "Timezone", Description: batchv1.CronJobSpec{}.SwaggerDoc()["timeZone"], Since: 30, Value: timeZone},
		{Name: "Suspend", Type: "boolean", Description: batchv1.CronJobSpec{}.SwaggerDoc()["suspend"], Value: suspended},
		{Name: "Active", Type: "integer", Description: batchv1.CronJobStatus{}.SwaggerDoc()["active"],
			Value: func(c *batchv1.CronJob) any { return int64(len(c.Status.Active)) }},
		{Name: "Last Schedule", Description: batchv1.CronJobStatus{}.SwaggerDoc()["lastScheduleTime"], Value: lastSchedule},
		resource.Age[*batchv1.CronJob](),
	}, resource.Wide(append(
		workload.ContainerColumns(func(c *batchv1.CronJob) *corev1.PodTemplateSpec { return &c.Spec.JobTemplate.Spec.Template }),
		workload.SelectorColumn(batchv1.JobSpec{}.SwaggerDoc()["selector"], func(c *batchv1.CronJob) *metav1.LabelSelector { return c.Spec.JobTemplate.Spec.Selector }),
	)...)),
}

// maxCronJobName leaves room for what the controller appends to make the name
// of a job (a dash and a time, 11 characters), which is a label of its pods
// and thus at most 63 characters long.
const maxCronJobName = 52

func cronJobName(name string, prefix bool) []string {
	msgs := apivalidation.NameIsDNSSubdomain(name, prefix)
	if !prefix && len(name) > maxCronJobName {
		msgs = append(msgs, fmt.Sprintf("must be no more than %d characters", maxCronJobName))
	}
	return msgs
}

// defaultCronJob sets the defaults of a cron job. Those of the jobs are set when
// the jobs are created.
func defaultCronJob(c *batchv1.CronJob) {
	defaultJobTemplate(&c.Spec.JobTemplate.Spec)
	resource.FillEmpty(&c.Spec.ConcurrencyPolicy, batchv1.AllowConcurrent)
	resource.Fill(&c.Spec.Suspend, false)
	resource.Fill(&c.Spec.SuccessfulJobsHistoryLimit, 3)
	resource.Fill(&c.Spec.FailedJobsHistoryLimit, 1)
}

func validateCronJob(c *batchv1.CronJob) field.ErrorList {
	spec, path := &c.Spec, field.NewPath("spec")
	return slices.Concat(
		validateSchedule(spec.Schedule, path.Child("schedule")),
		resource.OneOf(path.Child("concurrencyPolicy"), spec.ConcurrencyPolicy, batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent),
		validateJobTemplate(&spec.JobTemplate.Spec, path.Child("jobTemplate", "spec")),
		workload.ValidateCounts(path,
			workload.OfPtr("startingDeadlineSeconds", spec.StartingDeadlineSeconds),
			workload.OfPtr("successfulJobsHistoryLimit", spec.SuccessfulJobsHistoryLimit),
			workload.OfPtr("failedJobsHistoryLimit", spec.FailedJobsHistoryLimit)))
}

func validateSchedule(schedule string, path *field.Path) field.ErrorList {
	if schedule == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	if zone, _, fields := strings.Cut(schedule, " "); !fields && strings.Contains(zone, "TZ=") { // the parser panics
		return field.ErrorList{field.Invalid(path, schedule, "expected exactly 5 fields, found 0 after the time zone")}
	}
	if _, err := cron.ParseStandard(schedule); err != nil {
		return field.ErrorList{field.Invalid(path, schedule, err.Error())}
	}
	return nil
}

// What the API server says of schedules with a time zone of their own.
const (
	// ZoneRefused is the error of one that is new.
	ZoneRefused = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
	// TwoZones is the error of one in a cron job with another time zone.
	TwoZones = "cannot use both timeZone field and TZ or CRON_TZ in schedule"
	// ZoneWarning is the warning of an update of one.
	ZoneWarning = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)

// HasZone reports whether the schedule of a cron job has a time zone (TZ= or CRON_TZ=).
func HasZone(c *batchv1.CronJob) bool { return strings.Contains(c.Spec.Schedule, "TZ") }

// validateZoneOfSchedule refuses a time zone in the schedule, unless an older one had it.
func validateZoneOfSchedule(c *batchv1.CronJob, had bool) field.ErrorList {
	invalid := func(why string) field.ErrorList {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "schedule"), c.Spec.Schedule, why)}
	}
	switch {
	case !HasZone(c):
		return nil
	case !had:
		return invalid(ZoneRefused)
	case c.Spec.TimeZone != nil:
		return invalid(TwoZones)
	}
	return nil
}

// timeZonePart is a component of a zone's name (https://data.iana.org/time-zones/theory.html#naming),
// with the digits and the plus of old names. It prevents names that are paths to
// other files.
var timeZonePart = regexp.MustCompile(`^[A-Za-z._0-9+][A-Za-z._0-9+-]{0,13}$`)

func validateTimeZone(zone *string) field.ErrorList {
	if zone == nil {
		return nil
	}
	invalid := func(msg string) field.ErrorList {
		return field.ErrorList{field.Invalid(field.NewPath("spec", "timeZone"), *zone, msg)}
	}
	if *zone == "" {
		return invalid("timeZone must be nil or non-empty string")
	}
	for _, part := range strings.Split(*zone, "/") {
		if part == "." || part == ".." || !timeZonePart.MatchString(part) {
			return invalid("unknown time zone " + *zone)
		}
	}
	if strings.EqualFold(*zone, "Local") {
		return invalid("timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones")
	}
	if _, err := time.LoadLocation(*zone); err != nil {
		return invalid(err.Error())
	}
	return nil
}

// validateJobTemplate validates the spec of the jobs. They all get a generated
// selector.
func validateJobTemplate(spec *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validateJobSpec(spec, path)
	if spec.Selector != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, "`selector` will be auto-generated"))
	}
	if spec.ManualSelector != nil && *spec.ManualSelector {
		errs = append(errs, field.NotSupported(path.Child("manualSelector"), *spec.ManualSelector, []string{"nil", "false"}))
	}
	return errs
}

func timeZone(c *batchv1.CronJob) any {
	if c.Spec.TimeZone == nil {
		return "<none>"
	}
	return *c.Spec.TimeZone
}

func suspended(c *batchv1.CronJob) any {
	switch suspend := c.Spec.Suspend; {
	case suspend == nil:
		return "<unset>"
	case *suspend:
		return "True"
	}
	return "False"
}

func lastSchedule(c *batchv1.CronJob) any {
	if c.Status.LastScheduleTime == nil {
		return "<none>"
	}
	return *c.Status.LastScheduleTime
}
