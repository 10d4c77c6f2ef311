package container

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"svc.dev/svc/svclet/container/downward"
	"svc.dev/svc/svclet/expand"
)

// environment is a container's variables, in the order in which they were first
// set.
type environment struct {
	names  []string
	values map[string]string
}

func (e *environment) set(name, value string) {
	if _, known := e.values[name]; !known {
		e.names = append(e.names, name)
	}
	e.values[name] = value
}

func (e *environment) keyValues() []*runtimeapi.KeyValue {
	list := make([]*runtimeapi.KeyValue, 0, len(e.names))
	for _, name := range e.names {
		list = append(list, &runtimeapi.KeyValue{Key: name, Value: []byte(e.values[name])})
	}
	return list
}

// newEnvironment returns a container's variables: those of envFrom, those of env,
// which override them, and those of services that are in neither. A value of env
// may refer to variables before it, and to those of services.
func newEnvironment(ctx context.Context, in Input) (*environment, error) {
	services, err := serviceVariables(ctx, in.Objects, in.Pod)
	if err != nil {
		return nil, err
	}
	environment := &environment{values: map[string]string{}}
	objects := &reader{Objects: in.Objects, namespace: in.Pod.Namespace}
	for i := range in.Container.EnvFrom {
		if err := setFrom(ctx, environment, objects, &in.Container.EnvFrom[i]); err != nil {
			return nil, err
		}
	}
	left := expand.MaxLength
	for i := range in.Container.Env {
		variable := &in.Container.Env[i]
		value, err := expand.Text(variable.Value, expand.Lookup(environment.values, services), left)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", variable.Name, err)
		}
		left -= len(value)
		if variable.Value == "" && variable.ValueFrom != nil {
			var set bool
			if value, set, err = valueFrom(ctx, in, objects, variable.ValueFrom); err != nil {
				return nil, err
			}
			if !set {
				continue
			}
		}
		environment.set(variable.Name, value)
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, declared := environment.values[name]; !declared {
			environment.set(name, services[name])
		}
	}
	return environment, nil
}

// setFrom sets a variable for each key of a ConfigMap or Secret.
func setFrom(ctx context.Context, environment *environment, objects *reader, source *corev1.EnvFromSource) error {
	switch {
	case source.ConfigMapRef != nil:
		ref := source.ConfigMapRef
		configMap, err := objects.configMap(ctx, ref.Name, ref.Optional)
		if err != nil || configMap == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
			environment.set(source.Prefix+key, configMap.Data[key])
		}
	case source.SecretRef != nil:
		ref := source.SecretRef
		secret, err := objects.secret(ctx, ref.Name, ref.Optional)
		if err != nil || secret == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(secret.Data)) {
			environment.set(source.Prefix+key, string(secret.Data[key]))
		}
	}
	return nil
}

// valueFrom returns the value of a source. set is false if the source is optional
// and does not exist.
func valueFrom(ctx context.Context, in Input, objects *reader, source *corev1.EnvVarSource) (value string, set bool, err error) {
	switch {
	case source.FieldRef != nil:
		value, err = downward.Variable(in.Pod, source.FieldRef, in.addresses())
		return value, true, err
	case source.ResourceFieldRef != nil:
		value, err = downward.Resource(in.Pod, in.Container, source.ResourceFieldRef, in.Options.Allocatable)
		return value, true, err
	case source.ConfigMapKeyRef != nil:
		ref := source.ConfigMapKeyRef
		configMap, err := objects.configMap(ctx, ref.Name, ref.Optional)
		if err != nil || configMap == nil {
			return "", false, err
		}
		if value, found := configMap.Data[ref.Key]; found {
			return value, true, nil
		}
		return "", false, missingKey("ConfigMap", objects.namespace, ref.Name, ref.Key, ref.Optional)
	case source.SecretKeyRef != nil:
		ref := source.SecretKeyRef
		secret, err := objects.secret(ctx, ref.Name, ref.Optional)
		if err != nil || secret == nil {
			return "", false, err
		}
		if value, found := secret.Data[ref.Key]; found {
			return string(value), true, nil
		}
		return "", false, missingKey("Secret", objects.namespace, ref.Name, ref.Key, ref.Optional)
	case source.FileKeyRef != nil:
		return fileValue(in, source.FileKeyRef)
	default:
		return "", true, nil
	}
}

func missingKey(kind, namespace, name, key string, optional *bool) error {
	if optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("couldn't find key %v in %s %v/%v", key, kind, namespace, name)
}

// reader reads each object once for a container, so that its variables come from
// one version of the object.
type reader struct {
	Objects
	namespace  string
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

// configMap returns nil if the ConfigMap does not exist and is optional.
func (r *reader) configMap(ctx context.Context, name string, optional *bool) (*corev1.ConfigMap, error) {
	if known, ok := r.configMaps[name]; ok {
		return known, nil
	}
	if r.Objects == nil {
		return nil, fmt.Errorf("couldn't get configMap %v/%v, no kubeClient defined", r.namespace, name)
	}
	configMap, err := r.Objects.ConfigMap(ctx, r.namespace, name)
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	if r.configMaps == nil {
		r.configMaps = map[string]*corev1.ConfigMap{}
	}
	r.configMaps[name] = configMap
	return configMap, nil
}

func (r *reader) secret(ctx context.Context, name string, optional *bool) (*corev1.Secret, error) {
	if known, ok := r.secrets[name]; ok {
		return known, nil
	}
	if r.Objects == nil {
		return nil, fmt.Errorf("couldn't get secret %v/%v, no kubeClient defined", r.namespace, name)
	}
	secret, err := r.Objects.Secret(ctx, r.namespace, name)
	if err != nil {
		return nil, unlessOptional(err, optional)
	}
	if r.secrets == nil {
		r.secrets = map[string]*corev1.Secret{}
	}
	r.secrets[name] = secret
	return secret, nil
}

func unlessOptional(err error, optional *bool) error {
	if optional != nil && *optional && apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
