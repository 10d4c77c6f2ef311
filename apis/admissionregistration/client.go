package admissionregistration

import (
	"fmt"
	"net/url"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"svc.dev/svc/apis/resource"
)

// validateClient validates how a webhook is reached: by a URL or as a service.
func validateClient(path *field.Path, c *admissionv1.WebhookClientConfig) field.ErrorList {
	switch {
	case (c.URL == nil) == (c.Service == nil):
		return field.ErrorList{field.Required(path, "exactly one of url or service is required")}
	case c.URL != nil:
		return validateURL(path.Child("url"), *c.URL)
	}
	return validateService(path.Child("service"), c.Service)
}

func validateURL(path *field.Path, address string) field.ErrorList {
	const form = "; desired format: https://host[/path]"
	u, err := url.Parse(address)
	if err != nil {
		return field.ErrorList{field.Required(path, "url must be a valid URL: "+err.Error()+form)}
	}
	var errs field.ErrorList
	if u.Scheme != "https" {
		errs = append(errs, field.Invalid(path, u.Scheme, "'https' is the only allowed URL scheme"+form))
	}
	if u.Host == "" {
		errs = append(errs, field.Invalid(path, u.Host, "host must be specified"+form))
	}
	if u.User != nil {
		errs = append(errs, field.Invalid(path, u.User.String(), "user information is not permitted in the URL"))
	}
	if u.Fragment != "" {
		errs = append(errs, field.Invalid(path, u.Fragment, "fragments are not permitted in the URL"))
	}
	if u.RawQuery != "" {
		errs = append(errs, field.Invalid(path, u.RawQuery, "query parameters are not permitted in the URL"))
	}
	return errs
}

func validateService(path *field.Path, s *admissionv1.ServiceReference) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(path.Child("name"), ""))
	}
	if s.Namespace == "" {
		errs = append(errs, field.Required(path.Child("namespace"), ""))
	}
	if msgs := validation.IsValidPortNum(int(*s.Port)); len(msgs) > 0 {
		errs = append(errs, field.Invalid(path.Child("port"), *s.Port, "port is not valid: "+strings.Join(msgs, ", ")))
	}
	if s.Path == nil {
		return errs
	}
	return append(errs, resource.Invalid(path.Child("path"), *s.Path, servicePathFaults(*s.Path))...)
}

// servicePathFaults returns the problems of the path of a service's URL: its
// segments must be DNS subdomains, and only the last one may be empty.
func servicePathFaults(path string) []string {
	if path == "" || path == "/" {
		return nil
	}
	if path == "//" {
		return []string{"segment[0] may not be empty"}
	}
	var faults []string
	if !strings.HasPrefix(path, "/") {
		faults = append(faults, "must start with a '/'")
	}
	for i, segment := range strings.Split(strings.TrimSuffix(path[1:], "/"), "/") {
		if segment == "" {
			faults = append(faults, fmt.Sprintf("segment[%d] may not be empty", i))
			continue
		}
		for _, msg := range validation.IsDNS1123Subdomain(segment) {
			faults = append(faults, fmt.Sprintf("segment[%d]: %s", i, msg))
		}
	}
	return faults
}
