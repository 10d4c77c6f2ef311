package rules

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/batch"
	"svc.dev/svc/apis/resource"
	"svc.dev/svc/internal/releases"
)

// The releases whose cron jobs may have a time zone in their schedule, and the first one that
// warns of it. No gate decides it.
const firstZoned, firstWarning, lastZoned releases.Release = 22, 23, 28

// zoneWarning is the warning of these releases.
const zoneWarning = "CRON_TZ or TZ used in spec.spec.schedule is not officially supported, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"

// AcceptZones lets the schedules of cron jobs have a time zone at the releases that accept one.
func AcceptZones(kind *resource.Kind, release releases.Release) {
	if _, ok := kind.New().(*batchv1.CronJob); !ok || release < firstZoned || release > lastZoned {
		return
	}
	onCreate, onUpdate, warn := kind.ValidateCreate, kind.ValidateUpdate, kind.Warn
	kind.ValidateCreate = func(obj runtime.Object) field.ErrorList { return acceptZone(onCreate(obj), obj) }
	kind.ValidateUpdate = func(obj, old runtime.Object) field.ErrorList { return acceptZone(onUpdate(obj, old), obj) }
	kind.Warn = func(obj, old runtime.Object) []string {
		warnings := slices.DeleteFunc(warn(obj, old), func(w string) bool { return w == batch.ZoneWarning })
		if release >= firstWarning && batch.HasZone(obj.(*batchv1.CronJob)) {
			warnings = append(warnings, zoneWarning)
		}
		return warnings
	}
}

// acceptZone removes the error of a time zone, unless the cron job has another one.
func acceptZone(errs field.ErrorList, obj runtime.Object) field.ErrorList {
	for i, err := range errs {
		if err.Field != "spec.schedule" || err.Detail != batch.ZoneRefused {
			continue
		}
		if obj.(*batchv1.CronJob).Spec.TimeZone == nil {
			return slices.Delete(errs, i, i+1)
		}
		err.Detail = batch.TwoZones
	}
	return errs
}
