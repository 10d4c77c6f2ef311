package core

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	eventsv1beta1 "k8s.io/api/events/v1beta1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// eventsV1 is the version of events.k8s.io: the same objects with other field
// names.
var eventsV1 = resource.Convert(eventFromV1, eventToV1).ValidatedBy(validateEventV1).WithFieldLabels(eventsLabels())

// eventsV1beta1 is the older version, with the fields of v1 and without its rules.
var eventsV1beta1 = resource.Convert(
	func(in *eventsv1beta1.Event, out *corev1.Event) error {
		var same eventsv1.Event
		resource.CopyFields(in, &same)
		return eventFromV1(&same, out)
	},
	func(in *corev1.Event, out *eventsv1beta1.Event) error {
		var same eventsv1.Event
		if err := eventToV1(in, &same); err != nil {
			return err
		}
		resource.CopyFields(&same, out)
		return nil
	},
).ValidatedBy(func(obj, _ runtime.Object) field.ErrorList {
	return validateEvent(obj.(*corev1.Event), "reportingController")
}).WithFieldLabels(eventsLabels())

func eventsLabels() map[string]string {
	return map[string]string{
		"reason":                    "reason",
		"regarding.kind":            "involvedObject.kind",
		"regarding.namespace":       "involvedObject.namespace",
		"regarding.name":            "involvedObject.name",
		"regarding.uid":             "involvedObject.uid",
		"regarding.apiVersion":      "involvedObject.apiVersion",
		"regarding.resourceVersion": "involvedObject.resourceVersion",
		"regarding.fieldPath":       "involvedObject.fieldPath",
		"reportingController":       "reportingComponent",
		"type":                      "type",
	}
}

func eventFromV1(in *eventsv1.Event, out *corev1.Event) error {
	*out = corev1.Event{
		ObjectMeta:          in.ObjectMeta,
		InvolvedObject:      in.Regarding,
		Reason:              in.Reason,
		Message:             in.Note,
		Source:              in.DeprecatedSource,
		FirstTimestamp:      in.DeprecatedFirstTimestamp,
		LastTimestamp:       in.DeprecatedLastTimestamp,
		Count:               in.DeprecatedCount,
		Type:                in.Type,
		EventTime:           in.EventTime,
		Series:              (*corev1.EventSeries)(in.Series),
		Action:              in.Action,
		Related:             in.Related,
		ReportingController: in.ReportingController,
		ReportingInstance:   in.ReportingInstance,
	}
	return nil
}

func eventToV1(in *corev1.Event, out *eventsv1.Event) error {
	*out = eventsv1.Event{
		ObjectMeta:               in.ObjectMeta,
		EventTime:                in.EventTime,
		Series:                   (*eventsv1.EventSeries)(in.Series),
		ReportingController:      in.ReportingController,
		ReportingInstance:        in.ReportingInstance,
		Action:                   in.Action,
		Reason:                   in.Reason,
		Regarding:                in.InvolvedObject,
		Related:                  in.Related,
		Note:                     in.Message,
		Type:                     in.Type,
		DeprecatedSource:         in.Source,
		DeprecatedFirstTimestamp: in.FirstTimestamp,
		DeprecatedLastTimestamp:  in.LastTimestamp,
		DeprecatedCount:          in.Count,
	}
	return nil
}

// validateEventV1 adds what events.k8s.io/v1 requires to the rules of every event
// (document 2, section 9, row events/v1beta1 of the removed versions). Paths
// are those of the core version, as Kubernetes has them.
func validateEventV1(obj, old runtime.Object) field.ErrorList {
	e := obj.(*corev1.Event)
	errs := validateEvent(e, "reportingController")
	for i, name := range e.Finalizers {
		errs = append(errs, resource.FinalizerName(field.NewPath("metadata", "finalizers").Index(i), name)...)
	}
	if old == nil {
		return append(errs, validateNewEventV1(e)...)
	}
	return append(errs, validateEventV1Update(e, old.(*corev1.Event))...)
}

func validateNewEventV1(e *corev1.Event) field.ErrorList {
	errs := validateEventSeries(e)
	if e.Name != "" {
		errs = append(errs, resource.Invalid(field.NewPath("metadata", "name"), e.Name, apivalidation.NameIsDNSSubdomain(e.Name, false))...)
	}
	if e.GenerateName != "" {
		errs = append(errs, resource.Invalid(field.NewPath("metadata", "generateName"), e.GenerateName, apivalidation.NameIsDNSSubdomain(e.GenerateName, true))...)
	}
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if e.Type != corev1.EventTypeNormal && e.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", e.Type)))
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()},
		{"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0},
		{"source", e.Source != corev1.EventSource{}},
	} {
		if f.set {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", "needs to be unset"))
		}
	}
	return errs
}

func validateEventV1Update(e, old *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if !apiequality.Semantic.DeepEqual(e.Series, old.Series) {
		errs = validateEventSeries(e)
	}
	for _, f := range []struct {
		name     string
		obj, old any
	}{
		{"involvedObject", e.InvolvedObject, old.InvolvedObject},
		{"reason", e.Reason, old.Reason},
		{"message", e.Message, old.Message},
		{"source", e.Source, old.Source},
		{"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp},
		{"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count},
		{"type", e.Type, old.Type},
		// Clients write the time in microseconds, whatever precision they hold.
		{"eventTime", microseconds(e.EventTime), microseconds(old.EventTime)},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		errs = append(errs, apivalidation.ValidateImmutableField(f.obj, f.old, field.NewPath(f.name))...)
	}
	return errs
}

func microseconds(t metav1.MicroTime) metav1.MicroTime {
	return metav1.MicroTime{Time: t.Truncate(time.Microsecond)}
}

func validateEventSeries(e *corev1.Event) field.ErrorList {
	var errs field.ErrorList
	if e.Series == nil {
		return nil
	}
	if e.Series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if e.Series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}
