// Package imagepolicy owns the admission plugin ImagePolicyWebhook of Kubernetes: a
// backend decides by an ImageReview whether the images of a pod may run. It needs a
// configuration.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#imagepolicywebhook
package imagepolicy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"svc.dev/svc/apiserver/admission/pluginconfig"
	"svc.dev/svc/apiserver/responselimit"
)

// PluginName is the plugin's name in --enable-admission-plugins and --disable-admission-plugins.
const PluginName = pluginconfig.ImagePolicyWebhook

const (
	// auditPrefix begins the keys of audit annotations.
	auditPrefix = "imagepolicywebhook.image-policy.k8s.io/"
	// annotationPart is in the keys of the pod's annotations that the backend gets.
	annotationPart = ".image-policy.k8s.io/"
	// failedOpen is the annotation of pods that were admitted without an answer.
	failedOpen = "alpha.image-policy.k8s.io/failed-open"
	// answers is how many answers are kept.
	answers = 1024
)

// Register registers the plugin.
func Register(plugins *admission.Plugins) {
	plugins.Register(PluginName, func(file io.Reader) (admission.Interface, error) {
		var c document
		if err := pluginconfig.Read(PluginName, file, &c); err != nil {
			return nil, err
		}
		return newPlugin(c.ImagePolicy, clock.RealClock{})
	})
}

// plugin asks the backend.
type plugin struct {
	*admission.Handler
	settings
	backend *webhook.GenericWebhook
	answers *cache.LRUExpireCache
}

var _ admission.ValidationInterface = &plugin{}

func newPlugin(c config, clock clock.Clock) (*plugin, error) {
	s, err := c.settings()
	if err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", PluginName, err)
	}
	client, err := webhook.LoadKubeconfig(c.KubeConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("configuration of %s: imagePolicy.kubeConfigFile: %s: %w", PluginName, c.KubeConfigFile, err)
	}
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	backend, err := webhook.NewGenericWebhook(scheme, serializer.NewCodecFactory(scheme), responselimit.Of(client, responselimit.Review),
		[]schema.GroupVersion{imagepolicyv1alpha1.SchemeGroupVersion}, webhook.DefaultRetryBackoffWithInitialDelay(s.backoff))
	if err != nil {
		return nil, fmt.Errorf("configuration of %s: imagePolicy.kubeConfigFile: %w", PluginName, err)
	}
	return &plugin{
		Handler: admission.NewHandler(admission.Create, admission.Update), settings: s,
		backend: backend, answers: cache.NewLRUExpireCacheWithClock(answers, clock),
	}, nil
}

// Validate implements admission.ValidationInterface.
func (p *plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// The Go type is the same for every group domain of the kind.
	pod, ok := a.GetObject().(*corev1.Pod)
	if !ok {
		return nil
	}
	spec := imagepolicyv1alpha1.ImageReviewSpec{Namespace: a.GetNamespace(), Annotations: map[string]string{}}
	add := func(image string) {
		spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	switch a.GetSubresource() {
	case "":
		for _, c := range pod.Spec.Containers {
			add(c.Image)
		}
		for _, c := range pod.Spec.InitContainers {
			add(c.Image)
		}
	case "ephemeralcontainers":
		for _, c := range pod.Spec.EphemeralContainers {
			add(c.Image)
		}
	default:
		return nil
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, annotationPart) {
			spec.Annotations[key] = value
		}
	}
	if err := p.review(ctx, a, pod, spec); err != nil {
		return admission.NewForbidden(a, err)
	}
	return nil
}

// review returns an error unless the backend allows the images or, if it gives no
// answer, the configuration does.
func (p *plugin) review(ctx context.Context, a admission.Attributes, pod *corev1.Pod, spec imagepolicyv1alpha1.ImageReviewSpec) error {
	status, err := p.ask(ctx, spec)
	if err != nil && !p.defaultAllow {
		return err
	}
	if err != nil {
		klog.FromContext(ctx).Info("Admitted a pod without an answer of the image policy backend", "pod", klog.KRef(a.GetNamespace(), a.GetName()), "err", err)
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[failedOpen] = "true"
		return a.AddAnnotation(auditPrefix+"failed-open", "true")
	}
	for key, value := range status.AuditAnnotations {
		if err := a.AddAnnotation(auditPrefix+key, value); err != nil {
			klog.FromContext(ctx).Info("Failed to set an audit annotation of the image policy backend", "key", key, "err", err)
		}
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason)
	}
	return errors.New("one or more images rejected by webhook backend")
}

// ask returns the backend's answer, or the last one to the same question.
func (p *plugin) ask(ctx context.Context, spec imagepolicyv1alpha1.ImageReviewSpec) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	var none imagepolicyv1alpha1.ImageReviewStatus
	question, err := json.Marshal(spec)
	if err != nil {
		return none, err
	}
	if answer, ok := p.answers.Get(string(question)); ok {
		return answer.(imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	review := &imagepolicyv1alpha1.ImageReview{Spec: spec}
	result := p.backend.WithExponentialBackoff(ctx, func() rest.Result { return p.backend.RestClient.Post().Body(review).Do(ctx) })
	if err := result.Error(); err != nil {
		return none, err
	}
	if err := result.Into(review); err != nil {
		return none, err
	}
	if ttl := p.ttl(review.Status.Allowed); ttl > 0 {
		p.answers.Add(string(question), review.Status, ttl)
	}
	return review.Status, nil
}

func (p *plugin) ttl(allowed bool) time.Duration {
	if allowed {
		return p.allowTTL
	}
	return p.denyTTL
}
