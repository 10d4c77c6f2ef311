// Package podsecurity owns the admission plugin PodSecurity of Kubernetes: it
// enforces, audits and warns of the Pod Security Standards, by the labels of
// namespaces and a configuration of defaults and exemptions. The library
// k8s.io/pod-security-admission decides; the plugin connects it to the server.
// https://kubernetes.io/docs/concepts/security/pod-security-admission
package podsecurity

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/warning"
	basemetrics "k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	library "k8s.io/pod-security-admission/admission"
	"k8s.io/pod-security-admission/admission/api/load"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/metrics"
	"k8s.io/pod-security-admission/policy"

	"svc.dev/svc/apiserver/admission/namespaces"
	"svc.dev/svc/apiserver/release"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = "PodSecurity"

// Register registers the plugin. The version `latest` of the standards is that of
// the release that served returns when the server starts.
func Register(plugins *admission.Plugins, served func() release.Release) {
	plugins.Register(PluginName, func(file io.Reader) (admission.Interface, error) {
		config, err := load.LoadFromReader(file)
		if err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", PluginName, err)
		}
		latest := api.MajorMinorVersion(served().Major, served().Minor)
		evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), &latest)
		if err != nil {
			return nil, err
		}
		return &plugin{
			Reader: namespaces.NewReader(admission.Create, admission.Update),
			standards: &library.Admission{
				Configuration: config, Metrics: recorder(latest), Evaluator: evaluator, PodSpecExtractor: library.DefaultPodSpecExtractor{},
			},
		}, nil
	})
}

// recorder returns the metrics of the plugin. The registry is the library's, one for
// the process: of several servers in a process, the first one records.
func recorder(latest api.Version) metrics.Recorder {
	r := metrics.NewPrometheusRecorder(latest)
	r.MustRegister(func(all ...basemetrics.Registerable) {
		for _, metric := range all {
			var registered prometheus.AlreadyRegisteredError
			if err := legacyregistry.Register(metric); err != nil && !errors.As(err, &registered) {
				klog.Background().Error(err, "Failed to register the metrics of admission plugin PodSecurity")
			}
		}
	})
	return r
}

// plugin applies the Pod Security Standards.
type plugin struct {
	namespaces.Reader
	standards *library.Admission
}

var _ admission.ValidationInterface = &plugin{}

// ValidateInitialization implements admission.InitializationValidator. Pods are listed
// only when the labels of a namespace change, so they have no informer.
func (p *plugin) ValidateInitialization() error {
	if err := p.Reader.ValidateInitialization(); err != nil {
		return err
	}
	p.standards.PodLister = library.PodListerFromClient(p.Client)
	p.standards.NamespaceGetter = library.NamespaceGetterFromListerAndClient(p.Lister, p.Client)
	if err := p.standards.CompleteConfiguration(); err != nil {
		return fmt.Errorf("configuration of %s: %w", PluginName, err)
	}
	if err := p.standards.ValidateConfiguration(); err != nil {
		return fmt.Errorf("configuration of %s: %w", PluginName, err)
	}
	return nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if _, isNamespace := a.GetObject().(*corev1.Namespace); !isNamespace && !p.standards.PodSpecExtractor.HasPodSpec(a.GetResource().GroupResource()) {
		return nil
	}
	if err := p.Ready(a); err != nil {
		return err
	}
	answer := p.standards.Validate(ctx, request{a})
	for _, text := range answer.Warnings {
		warning.AddWarning(ctx, "", text)
	}
	for key, value := range answer.AuditAnnotations {
		audit.AddAuditAnnotation(ctx, api.AuditAnnotationPrefix+key, value)
	}
	if answer.Allowed {
		return nil
	}
	return refusal(a, answer)
}

// refusal returns the library's status in the form of an error for the request.
func refusal(a admission.Attributes, answer *admissionv1.AdmissionResponse) error {
	err := admission.NewForbidden(a, errors.New("not allowed by PodSecurity"))
	var status *apierrors.StatusError
	if answer.Result == nil || !errors.As(err, &status) {
		return err
	}
	if answer.Result.Message != "" {
		status.ErrStatus.Message = answer.Result.Message
	}
	if answer.Result.Reason != "" {
		status.ErrStatus.Reason = answer.Result.Reason
	}
	if answer.Result.Details != nil {
		status.ErrStatus.Details = answer.Result.Details
	}
	if answer.Result.Code != 0 {
		status.ErrStatus.Code = answer.Result.Code
	}
	return status
}

// request is a request as the library reads it. The objects in memory are of the
// types that it expects.
type request struct{ admission.Attributes }

var _ api.Attributes = request{}

// GetObject implements api.Attributes.
func (r request) GetObject() (runtime.Object, error) { return r.Attributes.GetObject(), nil }

// GetOldObject implements api.Attributes.
func (r request) GetOldObject() (runtime.Object, error) { return r.Attributes.GetOldObject(), nil }

// GetOperation implements api.Attributes.
func (r request) GetOperation() admissionv1.Operation {
	return admissionv1.Operation(r.Attributes.GetOperation())
}

// GetUserName implements api.Attributes.
func (r request) GetUserName() string { return r.GetUserInfo().GetName() }
