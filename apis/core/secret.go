package core

import (
	"crypto/tls"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

var secrets = resource.Type[*corev1.Secret]{
	Name: "secrets", Namespaced: true,
	Default:        defaultSecret,
	Validate:       validateSecret,
	ValidateUpdate: validateSecretUpdate,
	Warn:           warnSecret,
	Fields: map[string]func(*corev1.Secret) string{
		"type": func(s *corev1.Secret) string { return string(s.Type) },
	},
	Columns: []resource.Column[*corev1.Secret]{
		resource.Name[*corev1.Secret](),
		{Name: "Type", Description: corev1.Secret{}.SwaggerDoc()["type"],
			Value: func(s *corev1.Secret) any { return string(s.Type) }},
		{Name: "Data", Description: corev1.Secret{}.SwaggerDoc()["data"],
			Value: func(s *corev1.Secret) any { return int64(len(s.Data)) }},
		resource.Age[*corev1.Secret](),
	},
}

// defaultSecret moves stringData, which is write-only, into data.
func defaultSecret(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, value := range s.StringData {
		s.Data[key] = []byte(value)
	}
	s.StringData = nil
}

func validateSecret(s *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	total := 0
	for key, value := range s.Data {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(data.Key(key), key, msg))
		}
		total += len(value)
	}
	if total > corev1.MaxSecretSize {
		errs = append(errs, field.TooLong(data, "", corev1.MaxSecretSize))
	}
	if rule, ok := secretRules[s.Type]; ok {
		errs = append(errs, rule(s)...)
	}
	return errs
}

// secretRules are the rules of the types of secrets; other types have none.
var secretRules = map[corev1.SecretType]func(*corev1.Secret) field.ErrorList{
	// A controller may add the service account's UID and the token later.
	corev1.SecretTypeServiceAccountToken: func(s *corev1.Secret) field.ErrorList {
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
		return nil
	},
	corev1.SecretTypeDockercfg:        jsonAt(corev1.DockerConfigKey),
	corev1.SecretTypeDockerConfigJson: jsonAt(corev1.DockerConfigJsonKey),
	// At least one of them is required; it may be empty.
	corev1.SecretTypeBasicAuth: func(s *corev1.Secret) field.ErrorList {
		errs := keysOf(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)(s)
		if len(errs) < 2 {
			return nil
		}
		return errs
	},
	corev1.SecretTypeSSHAuth: func(s *corev1.Secret) field.ErrorList {
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(field.NewPath("data").Key(corev1.SSHAuthPrivateKey), "")}
		}
		return nil
	},
	corev1.SecretTypeTLS: keysOf(corev1.TLSCertKey, corev1.TLSPrivateKeyKey),
}

// keysOf requires that data has the keys.
func keysOf(keys ...string) func(*corev1.Secret) field.ErrorList {
	return func(s *corev1.Secret) field.ErrorList {
		var errs field.ErrorList
		for _, key := range keys {
			if _, ok := s.Data[key]; !ok {
				errs = append(errs, field.Required(field.NewPath("data").Key(key), ""))
			}
		}
		return errs
	}
}

// jsonAt requires that data has a JSON object under the key.
func jsonAt(key string) func(*corev1.Secret) field.ErrorList {
	return func(s *corev1.Secret) field.ErrorList {
		if errs := keysOf(key)(s); len(errs) > 0 {
			return errs
		}
		if err := json.Unmarshal(s.Data[key], &map[string]any{}); err != nil {
			return field.ErrorList{field.Invalid(field.NewPath("data").Key(key), "<secret contents redacted>", err.Error())}
		}
		return nil
	}
}

func validateSecretUpdate(s, old *corev1.Secret) field.ErrorList {
	errs := apivalidation.ValidateImmutableField(s.Type, old.Type, field.NewPath("type"))
	if old.Immutable == nil || !*old.Immutable {
		return errs
	}
	const msg = "field is immutable when `immutable` is set"
	if s.Immutable == nil || !*s.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), msg))
	}
	if !apiequality.Semantic.DeepEqual(s.Data, old.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), msg))
	}
	return errs
}

// warnSecret warns of a certificate and a key that do not belong together.
func warnSecret(s, _ *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
