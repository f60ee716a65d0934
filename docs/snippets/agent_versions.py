from greenroom import Client


def publish_and_try(url: str, message: str, share: int) -> str:
    """Publishes the present code of the app, and gives it a share of the new sessions."""
    with Client(url) as client:
        shares = client.list_app_versions(app_name="weather").shares
        serving = max(shares, key=lambda name: shares[name], default="source")
        published = client.publish_version(app_name="weather", message=message)
        client.set_traffic({serving: 100 - share, published.name: share}, app_name="weather")
    return published.name


def is_worse(url: str, version: str) -> bool:
    """Whether more runs of the version fail, or its answers are less helpful, by more than chance."""
    with Client(url) as client:
        scores = {one.name: one for one in client.get_version_scores(app_name="weather").versions}
    of_version = scores.get(version)
    if of_version is None:
        return False
    failures = of_version.failures
    if failures is not None and failures.is_significant and failures.difference > 0:
        return True
    helpful = of_version.feedback.get("helpful")
    comparison = helpful.comparison if helpful is not None else None
    return comparison is not None and comparison.is_significant and comparison.difference < 0


if __name__ == "__main__":
    new = publish_and_try("http://127.0.0.1:8000", "Answer in one sentence", share=10)
    print(f"{new} is worse: {is_worse('http://127.0.0.1:8000', new)}")
