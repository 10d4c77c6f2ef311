package core

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var events = resource.Type[*corev1.Event]{
	Name: "events", ShortNames: []string{"ev"}, Namespaced: true, AnyFinalizer: true,
	Versions:       []resource.Version{eventsV1, eventsV1beta1},
	NameRule:       path.ValidatePathSegmentName,
	Validate:       func(e *corev1.Event) field.ErrorList { return validateEvent(e, "reportingComponent") },
	CreateOnUpdate: true,
	TTL:            func(env *resource.Env) time.Duration { return env.EventTTL },
	Fields:         eventFields,
	Columns:        eventColumns,
}

// Longest values of a new-style event, in bytes.
const (
	eventWordLimit = 128
	eventNoteLimit = 1024
)

// validateEvent validates an event of any version. An event with an eventTime is
// in the new style and must have reportingController, reportingInstance, action
// and reason; reporter is the version's name of the field reportingController.
func validateEvent(e *corev1.Event, reporter string) field.ErrorList {
	if e.EventTime.IsZero() {
		if e.Namespace == e.InvolvedObject.Namespace || (e.InvolvedObject.Namespace == "" && e.Namespace == metav1.NamespaceDefault) {
			return nil
		}
		return field.ErrorList{foreignInvolvedObject(e)}
	}
	var errs field.ErrorList
	if e.InvolvedObject.Namespace == "" && e.Namespace != metav1.NamespaceDefault && e.Namespace != metav1.NamespaceSystem {
		errs = append(errs, foreignInvolvedObject(e))
	}
	if e.ReportingController == "" {
		errs = append(errs, field.Required(field.NewPath(reporter), ""))
	}
	for _, msg := range validation.IsQualifiedName(e.ReportingController) {
		errs = append(errs, field.Invalid(field.NewPath(reporter), e.ReportingController, msg))
	}
	for _, f := range []struct{ name, value string }{
		{"reportingInstance", e.ReportingInstance}, {"action", e.Action}, {"reason", e.Reason},
	} {
		if f.value == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), ""))
		}
		if len(f.value) > eventWordLimit {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", fmt.Sprintf("can have at most %v characters", eventWordLimit)))
		}
	}
	if len(e.Message) > eventNoteLimit {
		errs = append(errs, field.Invalid(field.NewPath("message"), "", fmt.Sprintf("can have at most %v characters", eventNoteLimit)))
	}
	return errs
}

func foreignInvolvedObject(e *corev1.Event) *field.Error {
	return field.Invalid(field.NewPath("involvedObject", "namespace"), e.InvolvedObject.Namespace, "does not match event.namespace")
}

var eventFields = map[string]func(*corev1.Event) string{
	"involvedObject.kind":            func(e *corev1.Event) string { return e.InvolvedObject.Kind },
	"involvedObject.namespace":       func(e *corev1.Event) string { return e.InvolvedObject.Namespace },
	"involvedObject.name":            func(e *corev1.Event) string { return e.InvolvedObject.Name },
	"involvedObject.uid":             func(e *corev1.Event) string { return string(e.InvolvedObject.UID) },
	"involvedObject.apiVersion":      func(e *corev1.Event) string { return e.InvolvedObject.APIVersion },
	"involvedObject.resourceVersion": func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion },
	"involvedObject.fieldPath":       func(e *corev1.Event) string { return e.InvolvedObject.FieldPath },
	"reason":                         func(e *corev1.Event) string { return e.Reason },
	"reportingComponent":             func(e *corev1.Event) string { return e.ReportingController },
	"source":                         eventReporter,
	"type":                           func(e *corev1.Event) string { return e.Type },
}

var eventColumns = func() []resource.Column[*corev1.Event] {
	doc := corev1.Event{}.SwaggerDoc()
	name := resource.Name[*corev1.Event]()
	name.Priority = 1
	return []resource.Column[*corev1.Event]{
		{Name: "Last Seen", Description: doc["lastTimestamp"], Value: func(e *corev1.Event) any { return eventLastSeen(e) }},
		{Name: "Type", Description: doc["type"], Value: func(e *corev1.Event) any { return e.Type }},
		{Name: "Reason", Description: doc["reason"], Value: func(e *corev1.Event) any { return e.Reason }},
		{Name: "Object", Description: doc["involvedObject"], Value: eventTarget},
		{Name: "Subobject", Priority: 1, Description: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"],
			Value: func(e *corev1.Event) any { return e.InvolvedObject.FieldPath }},
		{Name: "Source", Priority: 1, Description: doc["source"], Value: eventSource},
		{Name: "Message", Description: doc["message"], Value: func(e *corev1.Event) any { return strings.TrimSpace(e.Message) }},
		{Name: "First Seen", Priority: 1, Description: doc["firstTimestamp"], Value: func(e *corev1.Event) any { return eventFirstSeen(e) }},
		{Name: "Count", Priority: 1, Description: doc["count"], Value: eventCount},
		name,
	}
}()

func eventFirstSeen(e *corev1.Event) metav1.Time {
	if e.FirstTimestamp.IsZero() {
		return metav1.Time{Time: e.EventTime.Time}
	}
	return e.FirstTimestamp
}

func eventLastSeen(e *corev1.Event) metav1.Time {
	switch {
	case e.Series != nil:
		return metav1.Time{Time: e.Series.LastObservedTime.Time}
	case e.LastTimestamp.IsZero():
		return eventFirstSeen(e)
	}
	return e.LastTimestamp
}

func eventTarget(e *corev1.Event) any {
	kind := strings.ToLower(e.InvolvedObject.Kind)
	if e.InvolvedObject.Name == "" {
		return kind
	}
	return kind + "/" + e.InvolvedObject.Name
}

// eventReporter returns the component that reports the event, in either style.
func eventReporter(e *corev1.Event) string {
	if e.Source.Component != "" {
		return e.Source.Component
	}
	return e.ReportingController
}

func eventSource(e *corev1.Event) any {
	instance := e.Source.Host
	if instance == "" {
		instance = e.ReportingInstance
	}
	if instance == "" {
		return eventReporter(e)
	}
	return eventReporter(e) + ", " + instance
}

// eventCount returns the Count cell. It is 1 for an event in the new style that
// has no series.
func eventCount(e *corev1.Event) any {
	switch {
	case e.Series != nil:
		return int64(e.Series.Count)
	case e.Count == 0:
		return int64(1)
	}
	return int64(e.Count)
}
