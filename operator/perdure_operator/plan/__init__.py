"""What the operator decides: pure functions of observed values and a given time. No IO, no clock."""
